package watch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// weather is what a fleet goes through in one stretch of time.
type weather struct {
	lasts time.Duration
	// beating agents renew their leases, by number.
	beating []int
	// stalled is true while the watch shows nothing, down while the API server is away.
	stalled, down bool
	// shuffled is true while the watch shows renewals late and out of order, hidden while it shows those of agent 0 not at all.
	shuffled, hidden bool
}

// TestWhateverTheWeather : an agent that beats is never silent, no more silences than the limit allows are acted on in a window, and
// when all is well again the fleet is Normal and every agent alive.
func TestWhateverTheWeather(t *testing.T) {
	const agents = 12
	rapid.Check(t, func(rt *rapid.T) {
		var forecast []weather
		for range rapid.IntRange(1, 6).Draw(rt, "stretches") {
			forecast = append(forecast, weather{
				lasts:    time.Duration(rapid.IntRange(1, 30).Draw(rt, "lasts")) * 10 * time.Second,
				beating:  rapid.SliceOfNDistinct(rapid.IntRange(1, agents-1), 0, agents-1, rapid.ID[int]).Draw(rt, "beating"),
				stalled:  rapid.IntRange(0, 5).Draw(rt, "stalled") == 0,
				down:     rapid.IntRange(0, 5).Draw(rt, "down") == 0,
				shuffled: rapid.Bool().Draw(rt, "shuffled"),
				hidden:   rapid.Bool().Draw(rt, "hidden"),
			})
		}
		var faults []string // a property ends on its own goroutine
		fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
		synctest.Test(t, func(t *testing.T) {
			var silences []time.Time
			lead(t, newServer(), func(r *rig) {
				r.populate(agents)
				for _, w := range forecast {
					r.under(w)
					if state := r.Verdict(name(0), "host-n0000").State; state.Quiet() {
						fault("the agent that always beats is %s", state)
					}
				}
				r.under(weather{lasts: 10 * time.Minute, beating: between(1, agents)})
				if got := r.Fleet(); got.Verdict != fleet.Normal || r.Counts()[liveness.Alive] != agents {
					fault("when all is well again: %+v, %v", got, r.Counts())
				}
				silences = r.silent
			})
			limits := fleet.DefaultLimits()
			for i, at := range silences {
				window := slices.IndexFunc(silences, func(other time.Time) bool { return at.Sub(other) < limits.Window })
				if n := i - window + 1; n > limits.Allowed(agents) {
					fault("%d silences within %s, %d allowed", n, limits.Window, limits.Allowed(agents))
				}
			}
		})
		if len(faults) > 0 {
			rt.Fatal(faults)
		}
	})
}

// under lets the fleet live in a weather; agent 0 always beats, as far as the API server lets it.
func (r *rig) under(w weather) {
	r.server.mu.Lock()
	r.server.stalled = w.stalled || w.down
	if r.server.fault = nil; w.down {
		r.server.fault = errors.New("connection refused")
	}
	r.server.mu.Unlock()
	var late []*coordinationv1.Lease
	for passed := time.Duration(0); passed < w.lasts; passed += 10 * time.Second {
		for _, i := range append([]int{0}, w.beating...) {
			if w.down {
				break
			}
			lease := r.renew(name(i))
			switch {
			case w.stalled, w.hidden && i == 0:
			case w.shuffled && i%2 == 0:
				late = append(late, lease)
			default:
				r.leases.handler.OnAdd(lease, false)
			}
		}
		if len(late) > 0 && passed%(20*time.Second) == 0 {
			slices.Reverse(late)
			for _, lease := range late {
				r.leases.handler.OnAdd(lease, false)
			}
			late = nil
		}
		r.pass(10 * time.Second)
	}
	// What a watch has missed it shows when it is resumed.
	if !w.stalled && !w.down {
		return
	}
	r.server.mu.Lock()
	r.server.stalled, r.server.fault = false, nil
	var missed []*coordinationv1.Lease
	for i := range len(r.agents) {
		if lease := r.server.leases[name(i)]; lease != nil {
			missed = append(missed, lease)
		}
	}
	r.server.mu.Unlock()
	for _, lease := range missed {
		r.leases.handler.OnAdd(lease, false)
	}
}
