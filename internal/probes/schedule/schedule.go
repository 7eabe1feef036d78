package schedule

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

const (
	// relookAfter is the time to the next look of a check that is unsettled; the check's interval when that is shorter.
	relookAfter = time.Second
	// relooks bounds early looks in a row, so that a check which never settles is not looked at every second for ever.
	// It is above the sum of any two thresholds that the configuration allows.
	relooks = 24
	// firstLooksWithin spreads the first looks, so that an agent's start is no burst.
	firstLooksWithin = 500 * time.Millisecond
	// tick is the longest time without progress of a scheduler that is able to schedule.
	tick = time.Second
	// farewell is how long a scheduler that is told to end waits for looks that were told so too.
	farewell = time.Second
)

// Observe is told what a look came to and when it ended. unsettled asks for another look soon. It is called from one
// goroutine, never while another call of it runs, and must not block: checks wait for it, and so does Progress.
type Observe func(name string, r health.Result, at time.Time) (unsettled bool)

// Scheduler looks at checks again and again.
type Scheduler struct {
	// Resumed, if set before Run, is called when the process turns out to have been frozen, before any further Observe and
	// on the same goroutine.
	Resumed func()
	// Looked, if set before Run, is told of every look before Observe is, on the same goroutine: how long it took, and what
	// it came to. Of one that hangs it is told the time that was given to it, each time that is over.
	Looked func(name string, took time.Duration, r health.Result)

	seed    string
	plans   []*plan
	leaving map[string]*plan // by name: looks of checks that are gone which have not returned
	observe Observe
	log     *slog.Logger

	nudged   chan struct{} // that errands were added, or that a look is asked for
	errands  errands
	ended    chan ending
	over     chan struct{} // closed when nobody receives from ended any more
	progress atomic.Uint64
	turned   atomic.Pointer[time.Time] // when Run's loop last turned
}

// plan is where one check stands in its schedule. Only the goroutine of Run touches it.
type plan struct {
	Check
	first time.Duration // from the start of Run to the first look
	phase time.Duration // from the start of Run to the grid of regular looks
	start time.Time

	due      time.Time
	deadline time.Time // of the look that runs; zero when none is to be waited for
	began    time.Time // when a look last began
	running  bool      // a look has been started and has not returned
	hung     bool      // that look was reported as timed out
	cancel   context.CancelFunc
	early    int  // early looks in a row
	gone     bool // it is not to be looked at any more

	asked   atomic.Bool        // an early look is asked for; any goroutine sets it
	unwatch context.CancelFunc // ends the watch; nil where there is none
}

// ending is a look's goroutine coming back.
type ending struct {
	plan   *plan
	result health.Result
	took   time.Duration
}

// New makes a scheduler. seed tells machines apart (the node's UID, say): it sets each check's phase, so that a
// thousand machines started at once do not look, and write, in step. Intervals and timeouts must be above zero.
func New(checks []Check, seed string, observe Observe, log *slog.Logger) *Scheduler {
	s := &Scheduler{
		seed: seed, observe: observe, log: log, leaving: map[string]*plan{},
		nudged: make(chan struct{}, 1), ended: make(chan ending), over: make(chan struct{}),
	}
	for _, c := range checks {
		s.plans = append(s.plans, s.newPlan(c))
	}
	return s
}

func (s *Scheduler) newPlan(c Check) *plan {
	return &plan{
		Check: c,
		first: spread(s.seed+"/first/"+c.Name, min(firstLooksWithin, c.Interval/10)),
		phase: spread(s.seed+"/phase/"+c.Name, c.Interval),
	}
}

// spread picks a duration in [0, within) from a seed.
func spread(seed string, within time.Duration) time.Duration {
	if within <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(seed))
	// Mix once more: the high bits of FNV hardly differ between seeds that differ in their last bytes.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(within))
}

// Progress is a number that moves at least every second or so while the scheduler is able to start looks and to pass on
// results. Looks that hang do not stop it; an Observe that does not return does.
func (s *Scheduler) Progress() uint64 { return s.progress.Load() }

// Run schedules until ctx ends, and returns nil. Looks that run then are told to end and their results dropped; Run
// waits a second for them. It must be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	defer close(s.over)
	start := time.Now()
	for _, p := range s.plans {
		s.begin(ctx, p, start)
	}
	s.turned.Store(&start)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var e *ending
		select {
		case <-ctx.Done():
			s.farewell()
			return nil
		case ended := <-s.ended:
			e = &ended
		case <-s.nudged:
		case <-timer.C:
		}
		begun := time.Now()
		s.noticeGap(e, begun)
		s.turned.Store(&begun) // of the beginning, so that a freeze within this turn is noticed by the next
		if ctx.Err() == nil {
			s.runErrands(ctx)
		}
		if e != nil {
			s.end(ctx, *e)
		}
		now := time.Now()
		next := now.Add(tick)
		for _, p := range s.plans {
			if ctx.Err() != nil {
				break
			}
			if at := s.advance(ctx, p, now); at.Before(next) {
				next = at
			}
		}
		s.progress.Add(1)
		timer.Reset(max(time.Until(next), 0))
	}
}

// asleepAfter is a time without a turn of the scheduler's loop, which otherwise turns every second or so, after which it
// counts as having slept: the process was frozen, or its machine was.
const asleepAfter = 10 * time.Second

// Awake reports whether the scheduler turns. Where it does not, nothing that was found before can be relied on.
func (s *Scheduler) Awake() bool {
	turned := s.turned.Load()
	return turned == nil || time.Since(*turned) <= asleepAfter
}

// noticeGap finds out whether the scheduler slept. Then everything is looked at again, and looks that were under way are
// worth nothing: they saw the machine as it was before.
func (s *Scheduler) noticeGap(e *ending, now time.Time) {
	gap := now.Sub(*s.turned.Load())
	if gap <= asleepAfter {
		return
	}
	s.log.Warn("the agent did not run for a while; everything is looked at again", "gap", gap.Round(time.Second).String())
	for _, p := range s.plans {
		p.early, p.due = 0, now
		p.hung, p.deadline = p.running, time.Time{} // the result of what still runs is dropped when it comes
	}
	if e != nil {
		e.plan.hung = true
	}
	if s.Resumed != nil {
		s.Resumed()
	}
}

// begin puts a check on the schedule.
func (s *Scheduler) begin(ctx context.Context, p *plan, now time.Time) {
	p.start, p.due = now, now.Add(p.first)
	s.watch(ctx, p)
}

// advance does what is due for one check, and says when to come back to it.
func (s *Scheduler) advance(ctx context.Context, p *plan, now time.Time) time.Time {
	if !p.deadline.IsZero() && !now.Before(p.deadline) {
		if p.running && !p.hung {
			s.log.Warn("check hangs", "check", p.Name, "timeout", p.Timeout)
		}
		p.hung, p.deadline = p.running, time.Time{}
		p.plan(now, s.tell(p, p.timedOut(), p.patience(), now))
	}
	// A look that hangs is not joined by a second one, also where it is one of a check of that name which is gone. The
	// time that one would have had passes all the same, so that what is said of the check keeps following its thresholds.
	free := !p.running && s.leaving[p.Name] == nil
	if p.deadline.IsZero() && free && p.asked.Load() {
		p.due = earlier(p.due, p.began.Add(askedApart))
	}
	if p.deadline.IsZero() && !now.Before(p.due) {
		p.deadline = now.Add(p.patience())
		if free {
			s.start(ctx, p, now)
		}
	}
	if p.deadline.IsZero() {
		return p.due
	}
	return p.deadline
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// tell passes a result on.
func (s *Scheduler) tell(p *plan, r health.Result, took time.Duration, now time.Time) (unsettled bool) {
	if s.Looked != nil {
		s.Looked(p.Name, took, r)
	}
	return s.observe(p.Name, r, now)
}

func (s *Scheduler) start(ctx context.Context, p *plan, now time.Time) {
	look, cancel := context.WithTimeout(ctx, p.Timeout)
	p.running, p.cancel, p.began = true, cancel, now
	p.asked.Store(false) // what is asked for from now on may concern what this look does not see
	c := p.Check         // the plan's may change while the look runs
	go func() {
		r := c.look(look, s.log)
		select {
		case s.ended <- ending{plan: p, result: r, took: time.Since(now)}:
		case <-s.over:
		}
	}()
}

// end takes in a look that returned. The result of one that had been given up on is dropped, and its check is looked at
// afresh; so is the one that took its place, if it is gone.
func (s *Scheduler) end(ctx context.Context, e ending) {
	p, now := e.plan, time.Now()
	p.cancel()
	p.running = false
	if p.gone {
		delete(s.leaving, p.Name)
		if heir := s.find(p.Name); heir != nil && !heir.running {
			heir.deadline, heir.due = time.Time{}, earlier(heir.due, now)
		}
		return
	}
	if p.hung {
		s.log.Info("check came back", "check", p.Name)
		p.hung, p.deadline, p.due = false, time.Time{}, now
		return
	}
	p.deadline = time.Time{}
	if ctx.Err() == nil {
		p.plan(now, s.tell(p, e.result, e.took, now))
	}
}

// plan sets the time of the next look.
func (p *plan) plan(now time.Time, unsettled bool) {
	if unsettled && p.early < relooks {
		p.early++
		p.due = now.Add(min(relookAfter, p.Interval))
		return
	}
	if !unsettled {
		p.early = 0
	}
	// The first point of the grid that leaves half an interval of rest.
	after := now.Add(p.Interval/2).Sub(p.start) - p.phase
	steps := after/p.Interval + 1
	if after < 0 {
		steps = 0
	}
	p.due = p.start.Add(p.phase + steps*p.Interval)
}

func (s *Scheduler) farewell() {
	patience := time.NewTimer(farewell)
	defer patience.Stop()
	for {
		waiting := false
		for _, p := range s.plans {
			waiting = waiting || (p.running && !p.hung)
		}
		for _, p := range s.leaving {
			waiting = waiting || !p.hung
		}
		if !waiting {
			return
		}
		select {
		case e := <-s.ended:
			e.plan.cancel()
			e.plan.running = false
			if e.plan.gone {
				delete(s.leaving, e.plan.Name)
			}
		case <-patience.C:
			return
		}
	}
}
