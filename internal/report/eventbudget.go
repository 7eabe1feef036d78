package report

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// eventBurst and eventEvery bound the events of one agent as client-go bounds those of a source about one object: so
	// many at once, and one more in every such time.
	eventBurst = 25
	eventEvery = 5 * time.Minute
	// topicBurst and topicEvery bound what one check may take of that, so that one which goes to and fro leaves the most of
	// it to others. A check that flaps by the default rule is told of until it does.
	topicBurst = 8
	topicEvery = 15 * time.Minute
)

// subject is what an event is about: a check, or with life something of the agent's own. Without a topic it is a
// conflict of identities.
type subject struct {
	topic string
	life  bool
}

// eventBudget bounds how many events are sent. What it does not allow waits.
type eventBudget struct {
	all *rate.Limiter
	of  map[subject]*rate.Limiter
}

func newEventBudget() eventBudget {
	return eventBudget{all: rate.NewLimiter(rate.Every(eventEvery), eventBurst), of: map[subject]*rate.Limiter{}}
}

// spend takes what an event costs. Where there is not so much it takes nothing, and says how long until there is.
func (b *eventBudget) spend(s subject, now time.Time) (wait time.Duration) {
	own := b.of[s]
	if own == nil {
		own = rate.NewLimiter(rate.Every(topicEvery), topicBurst)
		b.of[s] = own
	}
	if wait = max(untilOne(b.all, now), untilOne(own, now)); wait == 0 {
		b.all.AllowN(now, 1)
		own.AllowN(now, 1)
	}
	return wait
}

// untilOne is how long until a limiter allows one more.
func untilOne(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + time.Millisecond // not a little too early
}
