package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

var (
	fine   = health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: "fine"}
	broken = health.Result{Verdict: health.Fatal, Reason: "Broken", Message: "in pieces"}
)

// consultation is a diagnosis whose scheduler runs, in a bubble of synctest, of checks whose looks come to what finds says.
type consultation struct {
	*diagnosis
	finds   sync.Map // by check: a health.Result
	log     bytes.Buffer
	mu      sync.Mutex
	told    []health.Report
	changes []string
	lost    []string
	kept    health.Snapshot
	stop    func()
}

// check is looked at every half minute, and believed at once.
func (c *consultation) check(name, condition string, change func(*health.Check)) (schedule.Check, health.Check) {
	judged := health.Check{Name: name, Condition: condition, Thresholds: health.Thresholds{Failure: 1, Success: 1}}
	if change != nil {
		change(&judged)
	}
	return schedule.Check{
		Name: name, Definition: "same", Interval: 30 * time.Second, Timeout: time.Second,
		Probe: probes.Func(func(context.Context) health.Result {
			r, _ := c.finds.Load(name)
			return r.(health.Result)
		}),
	}, judged
}

// consult begins one, of the checks that are added; run starts its scheduler.
func consult(t *testing.T, remembered health.Snapshot, checks func(add func(schedule.Check, health.Check), c *consultation)) *consultation {
	t.Helper()
	c := &consultation{}
	parts := diagnosisParts{
		seed: "machine", bootID: "boot", remembered: remembered, log: slog.New(slog.NewTextHandler(&c.log, nil)),
		tell: func(r health.Report) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.told = append(c.told, r)
		},
		changed: func(before, after health.CheckState, condition string) {
			c.changes = append(c.changes, fmt.Sprintf("%s of %s: %s/%s to %s/%s", after.Name, condition, before.Verdict, before.Reason, after.Verdict, after.Reason))
		},
		lost: func(l health.Lost) {
			c.lost = append(c.lost, fmt.Sprintf("%s of %s: %s (%s)", l.Check, l.Condition, l.Reason, l.Message))
		},
		remember: func(s health.Snapshot, _ bool) { c.kept = s },
	}
	checks(func(s schedule.Check, h health.Check) {
		parts.looks, parts.checks = append(parts.looks, s), append(parts.checks, h)
		c.finds.Store(s.Name, fine)
	}, c)
	c.diagnosis = newDiagnosis(parts)
	c.begin()
	return c
}

func (c *consultation) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.scheduler.Run(ctx) }()
	c.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.end()
	}
}

// pass lets time go by, and sees to it that everything has happened that was to.
func (c *consultation) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// heard is every report so far.
func (c *consultation) heard() []health.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func (c *consultation) latest() health.Report { told := c.heard(); return told[len(told)-1] }

// says is the latest report's conditions.
func (c *consultation) says() (all []string) {
	for _, k := range c.latest().Conditions {
		all = append(all, fmt.Sprintf("%s=%s/%s", k.Type, k.Status, k.Reason))
	}
	return all
}

func TestDiagnosisSaysWhatChangedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consult(t, health.Snapshot{}, func(add func(schedule.Check, health.Check), c *consultation) {
			add(c.check("a", "x/A", nil))
			add(c.check("dry", "x/A", func(h *health.Check) { h.DryRun = true }))
		})
		c.run(t)
		c.pass(5 * time.Minute)
		c.finds.Store("a", broken)
		c.finds.Store("dry", broken)
		c.pass(5 * time.Minute)
		c.stop()
		if want := []string{
			"a of x/A: / to ok/OK", "dry of x/A: / to ok/OK", "a of x/A: ok/OK to fatal/Broken", "dry of x/A: ok/OK to fatal/Broken",
		}; !sameLines(c.changes, want) {
			t.Errorf("changes %q, want %q", c.changes, want)
		}
		for _, want := range []string{
			`level=INFO msg="check changed" check=a condition=x/A verdict=ok reason=OK detail=fine`,
			`level=WARN msg="check changed" check=a condition=x/A verdict=fatal reason=Broken detail="in pieces"`,
			`level=WARN msg="check changed" check=dry condition=x/A verdict=fatal reason=Broken detail="in pieces" dryRun=true`,
		} {
			if strings.Count(c.log.String(), want+"\n") != 1 {
				t.Errorf("%s\nlacks, once: %s", c.log.String(), want)
			}
		}
		if want := []string{"fettle.dev/Healthy=False/Broken", "x/A=False/Broken"}; !slices.Equal(c.says(), want) {
			t.Errorf("says %q, want %q", c.says(), want)
		}
	})
}

// sameLines compares what came at the same moment from several checks, in whatever order.
func sameLines(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// What time brings is said when it comes, though no look comes then.
func TestDiagnosisSaysWhatTimeBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consult(t, health.Snapshot{}, func(add func(schedule.Check, health.Check), c *consultation) {
			look, judged := c.check("held", "x/A", func(h *health.Check) { h.MinHold = 100 * time.Second })
			look.Interval = time.Hour
			add(look, judged)
		})
		c.finds.Store("held", broken)
		c.run(t)
		c.pass(time.Second)
		fell := c.latest().Checks[0].Since
		c.finds.Store("held", fine)
		c.scheduler.Soon("held")
		c.pass(10 * time.Second)
		if got := c.says(); got[1] != "x/A=False/Broken" {
			t.Errorf("within the hold it says %q", got)
		}
		c.pass(5 * time.Minute)
		c.stop()
		last := c.latest()
		if got := last.Checks[0]; got.Verdict != health.OK || got.Since.Sub(fell) != 100*time.Second {
			t.Errorf("%+v, which fell at %s", got, fell)
		}
	})
}

func TestDiagnosisLooksAfreshOnceAPrerequisiteIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consult(t, health.Snapshot{}, func(add func(schedule.Check, health.Check), c *consultation) {
			add(c.check("runtime", "x/Runtime", nil))
			look, judged := c.check("pods", "x/Pods", func(h *health.Check) { h.DependsOn = []string{"runtime"} })
			look.Interval = time.Hour
			add(look, judged)
		})
		c.run(t)
		c.pass(time.Minute)
		c.finds.Store("runtime", broken)
		c.finds.Store("pods", broken)
		c.pass(time.Minute)
		if want := []string{"fettle.dev/Healthy=False/Broken", "x/Pods=Unknown/PrerequisiteFailed", "x/Runtime=False/Broken"}; !slices.Equal(c.says(), want) {
			t.Errorf("says %q, want %q", c.says(), want)
		}
		c.finds.Store("runtime", fine)
		c.finds.Store("pods", fine)
		c.pass(time.Minute) // in which the dependent's next look is not due
		c.stop()
		if want := []string{"fettle.dev/Healthy=True/OK", "x/Pods=True/OK", "x/Runtime=True/OK"}; !slices.Equal(c.says(), want) {
			t.Errorf("says %q, want %q", c.says(), want)
		}
		for _, r := range c.heard() {
			for _, s := range r.Checks {
				if s.Name == "pods" && s.Verdict == health.Fatal {
					t.Errorf("a second fault: %+v", s)
				}
			}
		}
	})
}

func TestDiagnosisReconfiguresInOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consult(t, health.Snapshot{}, func(add func(schedule.Check, health.Check), c *consultation) {
			add(c.check("stays", "x/A", nil))
			add(c.check("goes", "x/B", nil))
		})
		c.finds.Store("goes", broken)
		c.run(t)
		c.pass(time.Minute)
		stays, judgedStays := c.check("stays", "x/A", nil)
		comes, judgedComes := c.check("comes", "x/C", nil)
		c.finds.Store("comes", fine)
		before := len(c.heard())
		inForce := false
		c.reconfigure([]schedule.Check{comes, stays}, []health.Check{judgedComes, judgedStays}, func() { inForce = true })
		c.pass(time.Second)
		if r := c.heard()[before]; !inForce || len(r.Checks) != 2 || r.Checks[1].Verdict != health.OK || !slices.Equal(r.Pending, []string{"fettle.dev/Healthy", "x/C"}) {
			t.Errorf("right after it: %+v", r)
		}
		c.pass(time.Minute)
		c.stop()
		if want := []string{"fettle.dev/Healthy=True/OK", "x/A=True/OK", "x/C=True/OK"}; !slices.Equal(c.says(), want) {
			t.Errorf("says %q, want %q", c.says(), want)
		}
		if want := "comes of x/C: / to ok/OK"; c.changes[len(c.changes)-1] != want {
			t.Errorf("changes %q, want the last to be %q", c.changes, want)
		}
	})
}

// A restart makes no change of what did not change, and says of nothing that it is well before it was looked at.
func TestDiagnosisStartsFromWhatIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := func(add func(schedule.Check, health.Check), c *consultation) {
			add(c.check("well", "x/A", nil))
			add(c.check("latched", "x/B", func(h *health.Check) { h.Clearing = health.ClearByReboot }))
		}
		first := consult(t, health.Snapshot{}, checks)
		first.run(t)
		first.finds.Store("latched", broken)
		first.pass(time.Minute)
		first.stop()

		second := consult(t, first.kept, checks)
		if want := []string{"fettle.dev/Healthy=False/Broken", "x/B=False/Broken"}; !slices.Equal(second.says(), want) || !slices.Equal(second.heard()[0].Pending, []string{"x/A"}) {
			t.Errorf("before a look it says %q, with %q pending; want %q", second.says(), second.heard()[0].Pending, want)
		}
		second.run(t)
		second.pass(time.Minute)
		second.stop()
		if want := []string{"fettle.dev/Healthy=False/Broken", "x/A=True/OK", "x/B=False/Broken"}; !slices.Equal(second.says(), want) {
			t.Errorf("after looks it says %q, want %q", second.says(), want)
		}
		if want := []string{"well of x/A: / to ok/OK"}; !slices.Equal(second.changes, want) {
			t.Errorf("changes %q, want %q", second.changes, want)
		}
		if !strings.Contains(second.log.String(), `msg="check is as it was before the agent started" check=latched condition=x/B verdict=fatal reason=Broken detail="in pieces"`) {
			t.Errorf("log:\n%s", second.log.String())
		}
	})
}

// A day of looks of a fault that never says the same twice: nothing is published or written to the disk.
func TestNumbersThatChangeAtEachLookAreNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consult(t, health.Snapshot{}, func(add func(schedule.Check, health.Check), c *consultation) {
			looks, judged := c.check("hot", "x/A", nil)
			n := 0
			looks.Probe = probes.Func(func(context.Context) health.Result {
				n++
				return health.Result{Verdict: health.Fatal, Reason: "Hot", Message: fmt.Sprintf("%d.%d degrees, as process %d found", 70+n%9, n%10, 2000+n*7919%2000)}
			})
			add(looks, judged)
		})
		c.run(t)
		c.pass(2 * time.Minute) // the first move is believed
		told, kept := len(c.heard()), c.kept
		c.pass(24 * time.Hour)
		c.stop()
		if now := len(c.heard()); now != told || c.latest().Checks[0].Message != "72.2 degrees, as process 3838 found" {
			t.Errorf("told %d times more: %+v", now-told, c.latest().Checks[0])
		}
		if !reflect.DeepEqual(c.kept, kept) {
			t.Errorf("remembered %+v, before %+v", c.kept, kept)
		}
	})
}

// No change of a configuration is a repair: what was latched is not lost without a trace, be it changed under way or
// between two starts.
func TestALatchedFaultIsNotLostWithoutATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := func(change func(*health.Check)) func(func(schedule.Check, health.Check), *consultation) {
			return func(add func(schedule.Check, health.Check), c *consultation) {
				add(c.check("disk", "x/A", func(h *health.Check) {
					h.Clearing, h.Definition = health.ClearByReboot, "1"
					change(h)
				}))
			}
		}
		c := consult(t, health.Snapshot{}, checks(func(*health.Check) {}))
		c.finds.Store("disk", broken)
		c.run(t)
		c.pass(time.Minute)
		c.finds.Store("disk", fine)
		c.pass(time.Minute)
		kept := c.kept
		change := func(change func(*health.Check)) {
			looks, judged := c.check("disk", "x/A", func(h *health.Check) {
				h.Clearing, h.Definition = health.ClearByReboot, "1"
				change(h)
			})
			c.reconfigure([]schedule.Check{looks}, []health.Check{judged}, nil)
			c.pass(time.Minute)
		}
		change(func(h *health.Check) { h.MinHold = time.Minute })
		if len(c.lost) > 0 || c.says()[0] != "fettle.dev/Healthy=False/Broken" {
			t.Errorf("with another hold: lost %q, says %q", c.lost, c.says())
		}
		change(func(h *health.Check) { h.Definition = "2" })
		c.stop()
		want := []string{"disk of x/A: Broken (in pieces)"}
		if !slices.Equal(c.lost, want) || !strings.Contains(c.log.String(), "a latched fault is lost") {
			t.Errorf("with other options: lost %q, log %s", c.lost, c.log.String())
		}
		for name, after := range map[string]func(*health.Check){
			"other options":       func(h *health.Check) { h.Definition = "2" },
			"another condition":   func(h *health.Check) { h.Condition = "x/B" },
			"cleared by looks":    func(h *health.Check) { h.Clearing = health.ClearByLooks },
			"another check alone": func(h *health.Check) { h.Name = "other" },
		} {
			next := consult(t, kept, checks(after))
			next.end()
			if !slices.Equal(next.lost, want) {
				t.Errorf("after a start with %s: lost %q", name, next.lost)
			}
		}
		same := consult(t, kept, checks(func(*health.Check) {}))
		same.end()
		if len(same.lost) > 0 {
			t.Errorf("after a start with the same: lost %q", same.lost)
		}
	})
}
