package schedule_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

var ok = probes.OK("well")

func well(context.Context) health.Result { return ok }

// sighting is one call of Observe.
type sighting struct {
	name string
	health.Result
	at time.Duration
}

// diary collects what a scheduler says, in a bubble of synctest.
type diary struct {
	start     time.Time
	seen      []sighting
	unsettled func(sighting) bool
}

func (d *diary) observe(name string, r health.Result, at time.Time) bool {
	s := sighting{name: name, Result: r, at: at.Sub(d.start)}
	d.seen = append(d.seen, s)
	return d.unsettled != nil && d.unsettled(s)
}

func (d *diary) of(name string) (found []sighting) {
	for _, s := range d.seen {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// runFor runs a scheduler for a while of fake time; synctest ends the test if a goroutine is left over.
func runFor(t *testing.T, d *diary, length time.Duration, checks ...schedule.Check) (log string) {
	t.Helper()
	var out bytes.Buffer
	d.start = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	if err := schedule.New(checks, "machine", d.observe, slog.New(slog.NewTextHandler(&out, nil))).Run(ctx); err != nil {
		t.Error(err)
	}
	return out.String()
}

func check(name string, probe probes.Func) schedule.Check {
	return schedule.Check{Name: name, Probe: probe, Definition: "same", Interval: 30 * time.Second, Timeout: 2 * time.Second}
}

func TestEveryCheckIsLookedAtAtOnceAndThenOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		runFor(t, d, 10*time.Minute, check("a", well), check("b", well))
		for _, name := range []string{"a", "b"} {
			seen := d.of(name)
			if seen[0].at > 500*time.Millisecond {
				t.Errorf("first look of %s at %s", name, seen[0].at)
			}
			if n := len(seen); n < 20 || n > 21 {
				t.Errorf("%d looks of %s in 20 intervals", n, name)
			}
			for i := 2; i < len(seen); i++ {
				if gap := seen[i].at - seen[i-1].at; gap != 30*time.Second {
					t.Errorf("look %d of %s came %s after the one before", i, name, gap)
				}
			}
			if gap := seen[1].at - seen[0].at; gap < 15*time.Second || gap > 45*time.Second {
				t.Errorf("second look of %s came %s after the first", name, gap)
			}
		}
		if a, b := d.of("a")[5].at, d.of("b")[5].at; a == b {
			t.Errorf("both checks are looked at in step, at %s", a)
		}
	})
}

func TestMachinesDoNotLookInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 100 machines started at the same time: no tenth of the interval has more than 30 of their second looks.
		tenths := map[int]int{}
		for i := range 100 {
			d := &diary{start: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			s := schedule.New([]schedule.Check{check("a", well)}, fmt.Sprintf("node-%d", i), d.observe, slog.New(slog.DiscardHandler))
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			tenths[int(d.seen[2].at%(30*time.Second)/(3*time.Second))]++
		}
		for tenth, n := range tenths {
			if n > 30 || len(tenths) < 8 {
				t.Errorf("tenth %d of the interval has %d of 100 looks; in all %v", tenth, n, tenths)
			}
		}
	})
}

func TestUnsettledCheckIsLookedAtAgainAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		d.unsettled = func(sighting) bool { return len(d.seen) < 3 }
		runFor(t, d, 2*time.Minute, check("a", well))
		for i, want := range []time.Duration{time.Second, time.Second} {
			if gap := d.seen[i+1].at - d.seen[i].at; gap != want {
				t.Errorf("look %d came %s after the one before, want %s", i+1, gap, want)
			}
		}
		if gap := d.seen[3].at - d.seen[2].at; gap < 15*time.Second {
			t.Errorf("a settled check was looked at again after %s", gap)
		}
	})
}

func TestCheckThatNeverSettlesFallsBackToItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{unsettled: func(sighting) bool { return true }}
		runFor(t, d, time.Hour, check("a", well))
		if n := len(d.seen); n > 120+30 {
			t.Errorf("%d looks in an hour, with an interval of 30s", n)
		}
	})
}

func TestCheckThatSettlesInBetweenIsAlwaysLookedAtAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		d.unsettled = func(sighting) bool { return len(d.seen)%2 == 1 }
		runFor(t, d, time.Hour, check("a", well))
		if len(d.seen) < 200 {
			t.Fatalf("%d looks", len(d.seen))
		}
		for i := 1; i < len(d.seen); i += 2 {
			if gap := d.seen[i].at - d.seen[i-1].at; gap != time.Second {
				t.Fatalf("look %d came %s after one that left the check unsettled", i, gap)
			}
		}
	})
}

func TestHungLookIsReportedAgainAndAgainAndNeverDoubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, calls atomic.Int32
		release := make(chan struct{})
		hang := func(context.Context) health.Result {
			calls.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-release // deaf to its context, as a read of a dead mount is
			return ok
		}
		go func() {
			time.Sleep(5 * time.Minute)
			close(release)
		}()
		d := &diary{}
		log := runFor(t, d, 8*time.Minute, check("hangs", hang), check("b", well))
		if most.Load() != 1 {
			t.Errorf("%d looks of one check at the same time", most.Load())
		}
		late := 0
		for _, s := range d.of("hangs") {
			if s.at < 5*time.Minute {
				if s.Reason != health.ReasonTimeout || s.Verdict != health.Unknown {
					t.Errorf("at %s: %+v", s.at, s.Result)
				}
				late++
			} else if s.Result != ok {
				t.Errorf("at %s, after it came back: %+v", s.at, s.Result)
			}
		}
		if first := d.of("hangs")[0].at; first > 3*time.Second {
			t.Errorf("the hung look was first reported at %s", first)
		}
		if late < 8 || late > 12 {
			t.Errorf("the hung check was reported %d times in 10 intervals", late)
		}
		var back time.Duration
		for _, s := range d.of("hangs") {
			if s.Result == ok {
				back = s.at
				break
			}
		}
		if back < 5*time.Minute || back > 5*time.Minute+time.Second {
			t.Errorf("the check that came back after 5m0s was looked at afresh at %s", back)
		}
		if n := strings.Count(log, "check hangs"); n != 1 {
			t.Errorf("%d log lines for one hang:\n%s", n, log)
		}
	})
}

// In one and the same run: whatever some checks do, the others are looked at exactly when they would be without them.
func TestHungChecksNeverDelayOthers(t *testing.T) {
	times := func(t *testing.T, others ...schedule.Check) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			runFor(t, d, 10*time.Minute, append([]schedule.Check{check("watched", well)}, others...)...)
			for _, s := range d.of("watched") {
				at = append(at, s.at)
			}
			time.Sleep(10 * time.Minute) // until the last look that hangs has returned
		})
		return at
	}
	alone := times(t)
	for _, hangFor := range []time.Duration{1500 * time.Millisecond, 10 * time.Second, 9 * time.Minute} {
		var others []schedule.Check
		for i := range 50 {
			others = append(others, check(fmt.Sprintf("hangs-%d", i), func(context.Context) health.Result {
				time.Sleep(hangFor)
				return ok
			}))
		}
		others = append(others, check("panics", func(context.Context) health.Result { panic("oh") }))
		if got := times(t, others...); !reflect.DeepEqual(got, alone) {
			t.Errorf("beside 50 checks that take %s: %v, alone: %v", hangFor, got, alone)
		}
	}
}

func TestProgressStopsOnlyWhenTheSchedulerCannotSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		hang := func(context.Context) health.Result { time.Sleep(time.Hour); return ok }
		var block atomic.Bool
		observe := func(name string, _ health.Result, _ time.Time) bool {
			if name == "well" && block.Load() {
				<-stuck
			}
			return false
		}
		s := schedule.New([]schedule.Check{check("hangs", hang), check("well", well)}, "", observe, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		last := s.Progress()
		for range 600 {
			time.Sleep(1100 * time.Millisecond)
			now := s.Progress()
			if now == last {
				t.Fatal("a hung check stopped the progress")
			}
			last = now
		}
		block.Store(true)
		time.Sleep(time.Minute)
		last = s.Progress()
		time.Sleep(time.Minute)
		if s.Progress() != last {
			t.Error("an observer that does not return did not stop the progress")
		}
		close(stuck)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour) // for the goroutine of the hung look, which synctest would miss otherwise
	})
}

func TestPanicIsAResultAndItsStackIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		log := runFor(t, d, 2*time.Second, check("a", func(context.Context) health.Result { panic("index out of reach") }))
		if r := d.seen[0].Result; r.Verdict != health.Unknown || r.Reason != health.ReasonPanicked {
			t.Errorf("%+v", r)
		}
		if !strings.Contains(log, "index out of reach") || !strings.Contains(log, "schedule_test.go") {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestProbeMayJudgeItsOwnDeadline(t *testing.T) {
	unreachable := health.Result{Verdict: health.Fatal, Reason: "Unreachable"}
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		runFor(t, d, 5*time.Second, check("a", func(ctx context.Context) health.Result {
			<-ctx.Done()
			return unreachable
		}))
		if d.seen[0].Result != unreachable {
			t.Errorf("%+v", d.seen[0])
		}
	})
}

func TestEndingTellsLooksAndDropsTheirResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		began := time.Now()
		told := false
		runFor(t, d, time.Second, check("a", func(ctx context.Context) health.Result {
			<-ctx.Done()
			told = ctx.Err() != nil
			return probes.OK("cut short")
		}))
		if !told || len(d.seen) != 0 {
			t.Errorf("told %t, observed %+v", told, d.seen)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("ending took %s longer than asked", took-time.Second)
		}
	})
	// The look may also return while the scheduler is busy, just when it is told to end.
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			d.unsettled = func(s sighting) bool {
				if s.name != "busy" {
					return false
				}
				if s.at > time.Second { // its second look; both checks have started
					time.Sleep(2 * time.Second)
				}
				return true
			}
			runFor(t, d, 2*time.Second, check("busy", well), check("a", func(ctx context.Context) health.Result {
				<-ctx.Done()
				return probes.OK("cut short")
			}))
			if seen := d.of("a"); len(seen) != 0 {
				t.Errorf("observed %+v", seen)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		runFor(t, &diary{}, time.Second, check("a", func(context.Context) health.Result {
			time.Sleep(time.Minute)
			return ok
		}))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("with a look that hangs Run ended after %s, want its second of patience", took)
		}
		time.Sleep(time.Minute)
	})
}

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := schedule.Once(t.Context(), []schedule.Check{
			check("slow", func(context.Context) health.Result { time.Sleep(time.Second); return ok }),
			check("hangs", func(context.Context) health.Result { time.Sleep(time.Hour); return ok }),
			check("well", well),
			check("panics", func(context.Context) health.Result { panic("oh") }),
		}, slog.New(slog.DiscardHandler))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
		var reasons []string
		for _, o := range got {
			reasons = append(reasons, o.Name+" "+o.Reason)
		}
		if want := []string{"slow OK", "hangs CheckTimedOut", "well OK", "panics CheckPanicked"}; !reflect.DeepEqual(reasons, want) {
			t.Errorf("%q, want %q", reasons, want)
		}
		time.Sleep(time.Hour)
	})
}

// Whatever looks take and say, no check is looked at twice at a time, and none is forgotten.
func TestScheduleProperties(t *testing.T) {
	const length = 2 * time.Minute
	rapid.Check(t, func(rt *rapid.T) {
		type behaviour struct {
			Takes     []int // milliseconds, look after look
			Interval  int   // seconds
			Unsettled bool
		}
		draws := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) behaviour {
			return behaviour{
				Takes:     rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 900, 1999, 2001, 2500, 31000}), 1, 5).Draw(t, "takes"),
				Interval:  rapid.IntRange(3, 60).Draw(t, "interval"),
				Unsettled: rapid.Bool().Draw(t, "unsettled"),
			}
		}), 1, 3).Draw(rt, "checks")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			d := &diary{unsettled: func(s sighting) bool { return draws[int(s.name[0]-'a')].Unsettled }}
			var checks []schedule.Check
			for i, b := range draws {
				var looks int
				var running bool
				c := check(string(rune('a'+i)), func(context.Context) health.Result {
					if running {
						failure = "two looks of one check at a time"
					}
					running = true
					time.Sleep(time.Duration(b.Takes[looks%len(b.Takes)]) * time.Millisecond)
					looks++
					running = false
					return ok
				})
				c.Interval = time.Duration(b.Interval) * time.Second
				checks = append(checks, c)
			}
			runFor(t, d, length, checks...)
			time.Sleep(time.Minute)
			for i, c := range checks {
				seen, last := d.of(c.Name), time.Duration(0)
				for _, s := range append(seen, sighting{at: length}) {
					// A look that hangs and comes back is followed by a fresh one, so two timeouts may pass.
					if gap := s.at - last; gap > c.Interval*3/2+2*(c.Timeout+time.Second) {
						failure = fmt.Sprintf("nothing of check %s %+v for %s before %s", c.Name, draws[i], gap, s.at)
					}
					last = s.at
				}
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}
