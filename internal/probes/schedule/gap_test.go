package schedule_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

// A process that was frozen looks at everything again before it believes anything. Here an Observe that does not return
// for a while stands in for the freeze: the loop does not turn.
func TestAfterASleepEverythingIsLookedAtAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sleep  time.Duration
		resume bool
	}{{"a long sleep", 20 * time.Second, true}, {"a short one", 8 * time.Second, false}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var asleep, resumed time.Time
				after := map[string]time.Time{} // first look begun after the sleep, by check
				look := func(name string) func(context.Context) health.Result {
					return func(context.Context) health.Result {
						mu.Lock()
						defer mu.Unlock()
						if _, seen := after[name]; !asleep.IsZero() && !seen {
							after[name] = time.Now()
						}
						return ok
					}
				}
				var s *schedule.Scheduler
				s = schedule.New([]schedule.Check{check("a", look("a")), check("b", look("b"))}, "machine", func(string, health.Result, time.Time) bool {
					if asleep.IsZero() && time.Since(start) > 70*time.Second {
						time.Sleep(tc.sleep)
						mu.Lock()
						asleep = time.Now()
						mu.Unlock()
						if s.Awake() == tc.resume {
							t.Errorf("awake at the end of a sleep of %s: %t", tc.sleep, s.Awake())
						}
					}
					return false
				}, slog.New(slog.DiscardHandler))
				s.Resumed = func() { resumed = time.Now() }
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				if err := s.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if got := !resumed.IsZero(); got != tc.resume {
					t.Fatalf("resumed: %t", got)
				}
				for name, at := range after {
					if soon := at.Sub(asleep) < 2*time.Second; tc.resume && !soon {
						t.Errorf("%s was looked at %s after the sleep", name, at.Sub(asleep))
					}
				}
				if len(after) != 2 || !s.Awake() {
					t.Errorf("looked at after the sleep: %v, awake: %t", after, s.Awake())
				}
			})
		})
	}
}

// What was asked for while the process was frozen, such as taking in that time has passed, is done once it is known that
// it was.
func TestErrandsOfAFrozenProcessComeAfterResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var order []string
		var s *schedule.Scheduler
		s = schedule.New([]schedule.Check{check("a", well)}, "machine", func(string, health.Result, time.Time) bool {
			if len(order) == 0 && time.Since(start) > 70*time.Second {
				time.Sleep(20 * time.Second)
				order = append(order, "frozen")
				s.Do(func() { order = append(order, "errand") })
			}
			return false
		}, slog.New(slog.DiscardHandler))
		s.Resumed = func() { order = append(order, "resumed") }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []string{"frozen", "resumed", "errand"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}
