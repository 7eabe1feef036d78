package health_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

// ruled has every rule there is.
func ruled(name string) health.Check {
	return health.Check{
		Name: name, Condition: "x/A", Definition: "d", Thresholds: health.Thresholds{Failure: 2, Success: 2}, MinHold: time.Minute,
		Flapping: health.Flapping{Changes: 2, Within: time.Minute}, StaleAfter: time.Minute, Clearing: health.ClearByReboot,
	}
}

func TestSnapshotIsSmallAndSaysNothingOfLooks(t *testing.T) {
	e := health.NewEngine([]health.Check{ruled("a"), {Name: "b", Condition: "x/B", Thresholds: once}, {Name: "never", Condition: "x/C", Thresholds: once}})
	zone := time.FixedZone("elsewhere", 3600)
	e.Restore(health.Snapshot{}, "boot", start)
	e.Observe("b", health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: "3 of 3"}, start.In(zone))
	before, revision := mustJSON2(e.Snapshot()), e.Revision()
	e.Observe("b", health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: "4 of 4"}, start.Add(time.Minute))
	if after := mustJSON2(e.Snapshot()); after != before || e.Revision() != revision {
		t.Errorf("another good look changed what is remembered:\n%s\n%s", before, after)
	}
	if want := `{"bootID":"boot","checks":[{"check":"b","condition":"x/B","verdict":"ok","reason":"OK","since":"2030-01-01T00:00:00Z"}]}`; before != want {
		t.Errorf("remembered as\n%s, want\n%s", before, want)
	}
}

func TestRestoreKeepsSince(t *testing.T) {
	for _, letter := range []string{"o", "f", "u", "d"} {
		s := newStory(t, health.Check{Name: "a", Condition: "x/A", Thresholds: once}, health.Check{Name: "b", Condition: "x/B", Thresholds: once})
		s.tell("b=o a=" + letter + " +3000 restart b=o +5 a=" + letter)
		r := s.engine.Report()
		if got := r.Checks[0].Since; !got.Equal(start) {
			t.Errorf("%s since %s, want %s", letter, got, start)
		}
		if got := r.Summary.Since; !got.Equal(start) {
			t.Errorf("the machine is %s since %s, want %s", r.Summary.Verdict, got, start)
		}
	}
	s := newStory(t, health.Check{Name: "a", Condition: "x/A", Thresholds: once})
	s.tell("a=f +3000 restart")
	if r := s.engine.Report(); r.Summary.Verdict != health.Fatal || !r.Summary.Since.Equal(start) {
		t.Errorf("before the first look after a restart: %+v", r.Summary)
	}
}

func TestRestoreDropsWhatIsNotOfThisCheck(t *testing.T) {
	broken := func(change func(*health.Remembered)) health.Snapshot {
		r := health.Remembered{Check: "a", Condition: "x/A", Definition: "d", Verdict: health.Fatal, Reason: "Broken", Since: start}
		change(&r)
		return health.Snapshot{BootID: "boot", Checks: []health.Remembered{r}}
	}
	for _, tc := range []struct {
		name   string
		change func(*health.Remembered)
		want   health.Verdict
		reason string
	}{
		{name: "the same check", change: func(*health.Remembered) {}, want: health.Fatal, reason: "Broken"},
		{name: "another name", change: func(r *health.Remembered) { r.Check = "b" }, want: health.Unknown, reason: health.ReasonPending},
		{name: "another condition", change: func(r *health.Remembered) { r.Condition = "x/B" }, want: health.Unknown, reason: health.ReasonPending},
		{name: "another definition", change: func(r *health.Remembered) { r.Definition = "e" }, want: health.Unknown, reason: health.ReasonPending},
		{name: "a verdict that does not exist", change: func(r *health.Remembered) { r.Verdict = "dead" }, want: health.Unknown, reason: health.ReasonPending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := health.NewEngine([]health.Check{ruled("a")})
			e.Restore(broken(tc.change), "boot", start)
			if got := e.Report().Checks[0]; got.Verdict != tc.want || got.Reason != tc.reason {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A clock that was set back must not hold a check for longer than its hold.
func TestTimesFromTheFutureCountAsNow(t *testing.T) {
	s := newStory(t, health.Check{Name: "a", Condition: "x/A", Thresholds: once, MinHold: time.Minute})
	s.tell("a=f")
	s.at = s.at.Add(-24 * time.Hour)
	if got, want := s.tell("restart a=o +59 +1"), "f f f o"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReconfigureKeepsWhatIsTheSame(t *testing.T) {
	a := health.Check{Name: "a", Condition: "x/A", Definition: "1", Thresholds: health.Thresholds{Failure: 2, Success: 1}}
	b := health.Check{Name: "b", Condition: "x/B", Definition: "1", Thresholds: once}
	for _, tc := range []struct {
		name   string
		words  string
		checks []health.Check
		want   string
	}{
		{name: "in another order", words: "a=o b=f", checks: []health.Check{b, a}, want: "fo"},
		{name: "one that is gone", words: "a=o b=f", checks: []health.Check{b}, want: "f"},
		{name: "one that is new", words: "a=o b=f", checks: []health.Check{a, {Name: "c", Condition: "x/C"}, b}, want: "o.f"},
		{name: "another definition", words: "a=o b=f", checks: []health.Check{a, with(b, func(c *health.Check) { c.Definition = "2" })}, want: "o."},
		{name: "another condition", words: "a=o b=f", checks: []health.Check{a, with(b, func(c *health.Check) { c.Condition = "x/C" })}, want: "o."},
		{name: "another severity holds at once, also within a hold", words: "a=o b=f", checks: []health.Check{a, with(b, func(c *health.Check) { c.Severity, c.MinHold = health.SeverityDegraded, time.Hour })}, want: "od"},
		{name: "another threshold counts the looks so far", words: "a=o b=f a=f", checks: []health.Check{with(a, func(c *health.Check) { c.Thresholds.Failure = 3 }), b}, want: "of"},
		{name: "a new dependence shuts out", words: "a=o b=f", checks: []health.Check{with(a, func(c *health.Check) { c.DependsOn = []string{"b"} }), b}, want: "u<f"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(t, a, b)
			s.tell(tc.words)
			s.engine.Reconfigure(tc.checks, s.at)
			if got := s.stand(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func with(c health.Check, change func(*health.Check)) health.Check { change(&c); return c }

func TestNextTick(t *testing.T) {
	for _, tc := range []struct {
		name  string
		check health.Check
		words string
		want  int // seconds after the start; 0: never
	}{
		{name: "nothing to wait for", words: "a=o"},
		{name: "before a verdict there is nothing to wait for", check: health.Check{StaleAfter: time.Minute, MinHold: time.Minute}, words: "+5"},
		{name: "a hold that hides good looks", check: health.Check{MinHold: time.Minute}, words: "a=f +10 a=o", want: 60},
		{name: "a hold that hides nothing", check: health.Check{MinHold: time.Minute}, words: "a=f +10"},
		{name: "the end of flapping", check: health.Check{Flapping: health.Flapping{Changes: 2, Within: time.Minute}}, words: "a=o +5 a=f +5 a=o", want: 70},
		{name: "a verdict that will be stale", check: health.Check{StaleAfter: time.Minute}, words: "a=o +5 a=o +5", want: 65},
		{name: "a verdict that is stale", check: health.Check{StaleAfter: time.Minute}, words: "a=o +60"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.check.Name, tc.check.Condition, tc.check.Thresholds = "a", "x/A", once
			s := newStory(t, tc.check)
			s.tell(tc.words)
			at, ok := s.engine.NextTick()
			if ok != (tc.want > 0) || ok && at.Sub(start) != time.Duration(tc.want)*time.Second {
				t.Errorf("at %s (%t), want %ds", at.Sub(start), ok, tc.want)
			}
		})
	}
}

// Whatever a state file says, nothing is said to be well because of it, and time passes on.
func FuzzRestore(f *testing.F) {
	s := newStory(&testing.T{}, ruled("a"), ruled("b"))
	for _, words := range []string{"a=o a=o b=f b=f", "a=f a=f", "a=o a=o a=f a=f a=o a=o", "+61", "reboot a=o"} {
		s.tell(words)
		f.Add(mustJSON(s.engine.Snapshot()))
	}
	f.Add([]byte(`{"bootID":"boot-0","checks":[{"check":"a","condition":"x/A","definition":"d","verdict":"ok","since":"9999-12-31T23:59:59Z","flapping":{"verdict":"fatal"},"changes":[{"at":"0001-01-01T00:00:00Z","from":{"verdict":"ok"}}],"latch":{}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var snapshot health.Snapshot
		if json.Unmarshal(raw, &snapshot) != nil {
			return
		}
		for _, boot := range []string{"boot-0", "another", ""} {
			e := health.NewEngine([]health.Check{ruled("a"), with(ruled("b"), func(c *health.Check) { c.Clearing = "" })})
			at := start
			e.Restore(snapshot, boot, at)
			for range 20 {
				r := e.Report()
				for _, c := range r.Conditions {
					if c.Status == health.StatusTrue {
						t.Fatalf("%+v", c)
					}
				}
				for _, c := range r.Checks {
					if len(c.Message) > health.MaxMessage || c.Verdict != health.Fatal && c.Verdict != health.Unknown {
						t.Fatalf("%+v", c)
					}
				}
				next, ok := e.NextTick()
				if !ok {
					break
				}
				if !next.After(at) {
					t.Fatalf("a tick due at %s, at %s", next, at)
				}
				at = next
				e.Tick(at)
			}
			if _, ok := e.NextTick(); ok {
				t.Fatal("without a look there is always another tick")
			}
			if _, err := json.Marshal(e.Snapshot()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a", "b"} {
				for range 2 {
					at = at.Add(time.Second)
					e.Observe(name, look('o'), at)
				}
			}
			if r := e.Report(); !r.Decided {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// forty is as many checks as an agent has, with every rule.
func forty() []health.Check {
	var checks []health.Check
	for i := range 40 {
		c := ruled(fmt.Sprintf("check-%d", i))
		c.Condition = "x/" + string(rune('A'+i%6))
		if i%4 == 3 {
			c.DependsOn = []string{fmt.Sprintf("check-%d", i-1)}
		}
		checks = append(checks, c)
	}
	return checks
}

func BenchmarkFortyChecks(b *testing.B) {
	checks := forty()
	setup := func() (*health.Engine, time.Time) {
		e, at := health.NewEngine(checks), start
		for range 2 {
			for _, c := range checks {
				at = at.Add(time.Millisecond)
				e.Observe(c.Name, look('o'), at)
			}
		}
		return e, at
	}
	result := health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: strings.Repeat("what was looked at ", 4) + "is well"}
	b.Run("observe a good look", func(b *testing.B) {
		e, at := setup()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at = at.Add(time.Millisecond)
			e.Observe(checks[i%len(checks)].Name, result, at)
		}
	})
	b.Run("report", func(b *testing.B) {
		e, _ := setup()
		b.ReportAllocs()
		for b.Loop() {
			e.Report()
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		e, _ := setup()
		b.ReportAllocs()
		for b.Loop() {
			e.Snapshot()
		}
	})
}
