package schedule_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

// running is a scheduler that runs in a bubble of synctest.
type running struct {
	*schedule.Scheduler
	diary
	log  bytes.Buffer
	stop func()
}

func run(t *testing.T, checks ...schedule.Check) *running {
	t.Helper()
	r := &running{}
	r.start = time.Now()
	r.Scheduler = schedule.New(checks, "machine", r.observe, slog.New(slog.NewTextHandler(&r.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// replace waits until the new checks are in force.
func (r *running) replace(checks ...schedule.Check) {
	done := make(chan struct{})
	r.Replace(checks, func() { close(done) })
	<-done
}

func defined(c schedule.Check, definition string) schedule.Check { c.Definition = definition; return c }

func TestReplaceStartsAndEndsChecksAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, check("stays", well), check("goes", well))
		time.Sleep(10 * time.Minute)
		r.replace(check("comes", well), check("stays", func(context.Context) health.Result { return probes.OK("another probe") }))
		at := time.Since(r.start)
		time.Sleep(10 * time.Minute)
		r.stop()
		if first := r.of("comes")[0].at; first < at || first > at+500*time.Millisecond {
			t.Errorf("the new check was first looked at %s after it came", first-at)
		}
		if last := r.of("goes")[len(r.of("goes"))-1].at; last > at {
			t.Errorf("the check that went was looked at %s later", last-at)
		}
		stays := r.of("stays")
		for i := 2; i < len(stays); i++ {
			if gap := stays[i].at - stays[i-1].at; gap != 30*time.Second || stays[i].Result != ok {
				t.Errorf("look %d of the check that stays came %s after the one before: %+v", i, gap, stays[i].Result)
			}
		}
		if n := len(stays); n < 40 {
			t.Errorf("%d looks of the check that stays", n)
		}
	})
}

func TestReplaceTakesOverAnotherInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := check("a", well)
		c.Interval = time.Hour
		r := run(t, c)
		time.Sleep(5 * time.Minute)
		c.Interval = 10 * time.Second
		r.replace(c)
		at := time.Since(r.start)
		time.Sleep(5 * time.Minute)
		r.stop()
		var after []sighting
		for _, s := range r.of("a") {
			if s.at > at {
				after = append(after, s)
			}
		}
		if len(after) < 29 || after[0].at > at+15*time.Second {
			t.Errorf("%d looks in 30 intervals, the first %s after the change", len(after), after[0].at-at)
		}
	})
}

func TestResultsOfAReplacedCheckAreDropped(t *testing.T) {
	for _, tc := range []struct {
		name, before, after string
		same                bool
	}{
		{name: "the same check", before: "old", after: "old", same: true},
		{name: "another of its name", before: "old", after: "new"},
		{name: "two that nobody can tell to be the same"},
	} {
		synctest.Test(t, func(t *testing.T) {
			told := false
			r := run(t, defined(check("a", func(ctx context.Context) health.Result {
				select {
				case <-ctx.Done():
					told = true
				case <-time.After(1500 * time.Millisecond):
				}
				return probes.OK("of the old one")
			}), tc.before))
			time.Sleep(time.Second)
			r.replace(defined(check("a", well), tc.after))
			time.Sleep(10 * time.Second)
			r.stop()
			want := "of the old one"
			if !tc.same {
				want = ok.Message
			}
			if told == tc.same || len(r.seen) != 1 || r.seen[0].Message != want {
				t.Errorf("%s: told to end %t, saw %+v", tc.name, told, r.seen)
			}
		})
	}
}

// A look that hangs and whose check is gone keeps any other of its name from being looked at, however often the
// configuration changes; what is said meanwhile is that it times out.
func TestAHungLookIsNeverDoubledByReplacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		release := make(chan struct{})
		hang := check("a", func(context.Context) health.Result {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-release
			return probes.OK("of the hung one")
		})
		r := run(t, defined(hang, "0"), check("b", well))
		for i := 1; i <= 20; i++ {
			time.Sleep(10 * time.Second)
			if i%5 == 0 {
				r.replace(check("b", well)) // gone altogether in between
				time.Sleep(time.Second)
			}
			r.replace(check("b", well), defined(hang, fmt.Sprint(i)))
		}
		r.replace(check("b", well), defined(check("a", well), "last"))
		time.Sleep(time.Minute)
		synctest.Wait()
		before := time.Since(r.start)
		for _, s := range r.of("a") {
			if s.Reason != health.ReasonTimeout {
				t.Errorf("at %s: %+v", s.at, s.Result)
			}
		}
		close(release)
		time.Sleep(time.Minute)
		r.stop()
		if most.Load() != 1 {
			t.Errorf("%d looks of one name at the same time", most.Load())
		}
		var after []sighting
		for _, s := range r.of("a") {
			if s.at >= before {
				after = append(after, s)
			}
		}
		if len(after) == 0 || after[0].at > before+time.Second || after[0].Result != ok {
			t.Errorf("after the hung look returned, at %s: %+v", before, after)
		}
	})
}

// Whatever is replaced when, each name has one look at a time, and only checks that are configured are reported.
func TestReplaceProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type change struct {
			after time.Duration
			names []string
			defs  []string
		}
		names := []string{"a", "b", "c"}
		changes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) change {
			c := change{after: time.Duration(rapid.IntRange(0, 40000).Draw(t, "after")) * time.Millisecond}
			c.names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string]).Draw(t, "names")
			for range c.names {
				c.defs = append(c.defs, rapid.SampledFrom([]string{"1", "2"}).Draw(t, "definition"))
			}
			return c
		}), 1, 8).Draw(rt, "changes")
		takes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 500, 1999, 2500, 70000}), 1, 6).Draw(rt, "takes")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			looks, busy := 0, map[string]bool{}
			make := func(name, def string) schedule.Check {
				return defined(check(name, func(context.Context) health.Result {
					mu.Lock()
					if busy[name] {
						failure = "two looks of " + name + " at a time"
					}
					busy[name] = true
					took := takes[looks%len(takes)]
					looks++
					mu.Unlock()
					time.Sleep(time.Duration(took) * time.Millisecond)
					mu.Lock()
					busy[name] = false
					mu.Unlock()
					return probes.OK("%s", def)
				}), def)
			}
			configured := map[string]string{}
			r := run(t)
			seen := 0
			verify := func() {
				for _, s := range r.seen[seen:] {
					if def, ok := configured[s.name]; !ok || s.Verdict == health.OK && s.Message != def {
						failure = fmt.Sprintf("of %s, configured %q, was said: %+v", s.name, def, s.Result)
					}
				}
				seen = len(r.seen)
			}
			for _, c := range changes {
				time.Sleep(c.after)
				var checks []schedule.Check
				for i, name := range c.names {
					checks = append(checks, make(name, c.defs[i]))
				}
				done := func() {
					verify()
					clear(configured)
					for i, name := range c.names {
						configured[name] = c.defs[i]
					}
				}
				r.Replace(checks, done)
			}
			time.Sleep(5 * time.Minute)
			r.stop()
			verify()
			for name := range configured {
				if !slices.ContainsFunc(r.seen, func(s sighting) bool { return s.name == name }) {
					failure = "nothing of " + name
				}
			}
			time.Sleep(5 * time.Minute) // until the last look that hangs has returned
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// eye is a probe that watches.
type eye struct {
	probes.Func
	watch func(ctx context.Context, look func())
}

func (e eye) Watch(ctx context.Context, look func()) { e.watch(ctx, look) }

func watching(name string, probe probes.Func, watch func(ctx context.Context, look func())) schedule.Check {
	c := check(name, probe)
	c.Probe = eye{Func: probe, watch: watch}
	return c
}

func TestWatchLeadsToALookAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, watching("a", well, func(ctx context.Context, look func()) {
			time.Sleep(5 * time.Second)
			look()
			<-ctx.Done()
		}))
		time.Sleep(10 * time.Second)
		r.stop()
		if !slices.ContainsFunc(r.of("a"), func(s sighting) bool { return s.at == 5*time.Second }) {
			t.Errorf("asked for a look at 5s, and looked at %v", r.of("a"))
		}
	})
}

func TestWatchIsBoundToOneLookASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, watching("a", well, func(ctx context.Context, look func()) {
			for ctx.Err() == nil {
				look()
				look()
				time.Sleep(time.Millisecond)
			}
		}))
		time.Sleep(time.Minute)
		r.stop()
		time.Sleep(time.Second) // until the watch has seen that it is to end
		if n := len(r.seen); n < 50 || n > 61 {
			t.Errorf("%d looks in a minute of asking", n)
		}
		for i := 1; i < len(r.seen); i++ {
			if gap := r.seen[i].at - r.seen[i-1].at; gap < time.Second {
				t.Errorf("look %d came %s after the one before", i, gap)
			}
		}
	})
}

// What changes while a look runs may not be in its result.
func TestALookAskedForWhileOneRunsComesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Duration
		start := time.Now()
		r := run(t, watching("a", func(context.Context) health.Result {
			begun = append(begun, time.Since(start))
			time.Sleep(1800 * time.Millisecond)
			return ok
		}, func(ctx context.Context, look func()) {
			time.Sleep(time.Second)
			look()
			<-ctx.Done()
		}))
		time.Sleep(5 * time.Second)
		r.stop()
		if len(begun) != 2 || begun[1] != begun[0]+1800*time.Millisecond {
			t.Errorf("looks began at %v", begun)
		}
	})
}

func TestWatchThatPanicsOrReturnsLeavesTheRegularLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t,
			watching("panics", well, func(context.Context, func()) { panic("oh") }),
			watching("returns", well, func(context.Context, func()) {}),
		)
		time.Sleep(10 * time.Minute)
		r.stop()
		if a, b := len(r.of("panics")), len(r.of("returns")); a < 20 || b < 20 {
			t.Errorf("%d and %d looks in 20 intervals", a, b)
		}
		if log := r.log.String(); strings.Count(log, "panicked while it watched") != 1 || !strings.Contains(log, "replace_test.go") {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestWatchEndsWithItsCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watches atomic.Int32
		watch := func(ctx context.Context, _ func()) {
			watches.Add(1)
			<-ctx.Done()
			watches.Add(-1)
		}
		a, b, c := watching("a", well, watch), watching("b", well, watch), watching("c", well, watch)
		r := run(t, a, b)
		for i, step := range []struct {
			checks []schedule.Check
			want   int32
		}{
			{[]schedule.Check{a, b}, 2}, {[]schedule.Check{a, b, c}, 3}, {[]schedule.Check{c}, 1},
			{[]schedule.Check{defined(c, "other")}, 1}, {nil, 0}, {[]schedule.Check{a}, 1},
		} {
			r.replace(step.checks...)
			synctest.Wait()
			if got := watches.Load(); got != step.want {
				t.Errorf("step %d: %d watches, want %d", i, got, step.want)
			}
		}
		r.stop()
		synctest.Wait()
		if got := watches.Load(); got != 0 {
			t.Errorf("%d watches after the end", got)
		}
	})
}

func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, check("a", well), check("b", well))
		time.Sleep(70 * time.Second)
		synctest.Wait()
		before := len(r.of("b"))
		r.Soon("a")
		r.Soon("a")
		r.Soon("gone")
		synctest.Wait()
		asked, seen := time.Since(r.start), r.of("a")
		if last := seen[len(seen)-1].at; last != asked || len(r.of("b")) != before {
			t.Errorf("asked at %s, last looked at %s", asked, last)
		}
		r.stop()
	})
}

func TestLookedTellsHowLongEachLookTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type entry struct {
			name, reason string
			took         time.Duration
		}
		var heard []entry
		d := &diary{}
		s := schedule.New([]schedule.Check{
			check("slow", func(context.Context) health.Result { time.Sleep(1500 * time.Millisecond); return ok }),
			check("hangs", func(context.Context) health.Result { time.Sleep(time.Minute); return ok }),
		}, "machine", d.observe, slog.New(slog.DiscardHandler))
		s.Looked = func(name string, took time.Duration, r health.Result) {
			heard = append(heard, entry{name, r.Reason, took})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if want := []entry{{"slow", "OK", 1500 * time.Millisecond}, {"hangs", "CheckTimedOut", 2200 * time.Millisecond}}; !slices.Equal(heard, want) {
			t.Errorf("%v, want %v", heard, want)
		}
		time.Sleep(time.Hour)
	})
}

// Looks that hang for ever cost a goroutine each, and no more with time or with reconfiguration; the scheduler makes
// progress and ends as if they were not there.
func TestManyHungLooksCostOneGoroutineEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := func(context.Context) health.Result { <-release; return ok }
		checks := []schedule.Check{check("well", well)}
		for i := range 30 {
			checks = append(checks, check(fmt.Sprintf("hangs-%d", i), hang))
		}
		before := runtime.NumGoroutine()
		r := run(t, checks...)
		progress := r.Progress()
		for range 100 {
			time.Sleep(time.Minute)
			for i := range checks[1:] {
				checks[i+1].Definition += "x"
			}
			r.replace(checks...)
			if now := r.Progress(); now < progress+30 {
				t.Fatalf("%d turns in a minute", now-progress)
			}
			progress = r.Progress()
		}
		// One each for the looks, one for Run, and one that the runtime may just be ending.
		if got := runtime.NumGoroutine() - before; got > 30+2 {
			t.Errorf("%d goroutines for 30 looks that hang", got)
		}
		if n := len(r.of("well")); n < 200 {
			t.Errorf("%d looks of a well check in 200 intervals", n)
		}
		asked := time.Now()
		r.stop()
		if took := time.Since(asked); took > time.Second {
			t.Errorf("ended after %s", took)
		}
		close(release)
	})
}

func TestReseedMovesToAnotherGridAndDelaysNoLook(t *testing.T) {
	looks := func(seed string, reseed bool) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, check("a", well))
			time.Sleep(15 * time.Second)
			if reseed {
				r.Reseed(seed)
			}
			time.Sleep(5 * time.Minute)
			r.stop()
			for _, s := range r.of("a") {
				at = append(at, s.at)
			}
		})
		return at
	}
	as := looks("", false)
	if same := looks("machine", true); !slices.Equal(same, as) {
		t.Errorf("with the seed it had, it looks at %v, not %v", same, as)
	}
	places := map[time.Duration]bool{}
	for i := range 20 {
		at := looks(fmt.Sprint("machine-", i), true)
		for j := 2; j < len(at); j++ {
			if gap := at[j] - at[j-1]; gap > 45*time.Second {
				t.Errorf("of seed %d it looks at %v, after %s", i, at, gap)
			}
		}
		if len(at) < 8 || at[1] > as[1] {
			t.Errorf("of seed %d it looks at %v, without it at %v", i, at, as)
		}
		places[at[len(at)-1]%(30*time.Second)] = true
	}
	if len(places) < 15 {
		t.Errorf("20 machines look at %d places", len(places))
	}
}
