package health_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

// life is an engine through looks, ticks, restarts, reboots, freezes and reconfigurations, whatever the order.
type life struct {
	engine *health.Engine
	checks []health.Check
	at     time.Time
	boot   int

	looked map[string]bool // by check: in this process, since it was last frozen, under this definition
	// fell is the check that came to be fatal by the last event, a look of it.
	fell string
	// latched : by check that only a reboot clears, the boot in which it fell.
	latched map[string]int
	// bad : by check with a hold, when it fell.
	bad map[string]time.Time
}

func (l *life) bootID() string { return fmt.Sprintf("boot-%d", l.boot) }

func drawChecks(t *rapid.T) []health.Check {
	var checks []health.Check
	for i := range rapid.IntRange(1, 4).Draw(t, "checks") {
		c := health.Check{
			Name: string(rune('a' + i)), Condition: rapid.SampledFrom([]string{"x/A", "x/B"}).Draw(t, "condition"),
			Definition: rapid.SampledFrom([]string{"", "", "", "other"}).Draw(t, "definition"),
			Thresholds: health.Thresholds{Failure: rapid.IntRange(1, 2).Draw(t, "failure"), Success: rapid.IntRange(1, 2).Draw(t, "success")},
			Severity:   rapid.SampledFrom([]health.Severity{"", health.SeverityFatal, health.SeverityDegraded, health.SeverityInfo}).Draw(t, "severity"),
			MinHold:    rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "hold"),
			StaleAfter: rapid.SampledFrom([]time.Duration{0, 90 * time.Second}).Draw(t, "stale"),
			Clearing:   rapid.SampledFrom([]health.Clearing{"", health.ClearByReboot}).Draw(t, "clearing"),
			DryRun:     rapid.IntRange(0, 4).Draw(t, "dry") == 0,
		}
		if rapid.Bool().Draw(t, "flaps") {
			c.Flapping = health.Flapping{Changes: rapid.IntRange(1, 4).Draw(t, "changes"), Within: 2 * time.Minute}
		}
		c.DependsOn = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "gone"}), 0, 1, rapid.ID[string]).Draw(t, "needs")
		checks = append(checks, c)
	}
	return checks
}

func newLife(checks []health.Check) *life {
	l := &life{engine: health.NewEngine(checks), checks: checks, at: start, looked: map[string]bool{}, latched: map[string]int{}, bad: map[string]time.Time{}}
	l.engine.Restore(health.Snapshot{}, l.bootID(), l.at)
	return l
}

// event lets something happen.
func (l *life) event(t *rapid.T) {
	l.fell = ""
	before := l.engine.Report()
	changed, revision := false, l.engine.Revision()
	snapshot := mustJSON(l.engine.Snapshot())
	switch kind := rapid.SampledFrom([]string{"look", "look", "look", "look", "look", "look", "tick", "tick", "wait", "restart", "reboot", "thaw", "configure"}).Draw(t, "event"); kind {
	case "look":
		name := rapid.SampledFrom(l.checks).Draw(t, "check").Name
		letter := rapid.SampledFrom([]byte("ooofffdun")).Draw(t, "look")
		l.at = l.at.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
		l.looked[name] = true
		changed = l.engine.Observe(name, look(letter), l.at)
		i := slices.IndexFunc(l.checks, func(c health.Check) bool { return c.Name == name })
		// One that flaps is held at what it was, perhaps in another boot.
		if now := l.engine.Report().Checks[i]; letter == 'f' && before.Checks[i].Verdict != health.Fatal && now.Verdict == health.Fatal && now.Reason != health.ReasonFlapping {
			l.fell = name
		}
	case "tick":
		next, ok := l.engine.NextTick()
		if !ok {
			return
		}
		if !next.After(l.at) {
			t.Fatalf("a tick was due at %s, and it is %s", next, l.at)
		}
		l.at = next
		changed = l.engine.Tick(l.at)
		if again, ok := l.engine.NextTick(); ok && !again.After(next) {
			t.Fatalf("the tick due at %s leaves one due at %s", next, again)
		}
	case "wait":
		// Without a tick in between: an agent that is busy ticks late.
		l.at = l.at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
		changed = l.engine.Tick(l.at)
	case "restart", "reboot":
		if kind == "reboot" {
			l.boot++
		}
		l.at = l.at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
		l.looked = map[string]bool{}
		var remembered health.Snapshot
		if err := json.Unmarshal(snapshot, &remembered); err != nil {
			t.Fatal(err)
		}
		l.engine = health.NewEngine(l.checks)
		l.engine.Restore(remembered, l.bootID(), l.at)
		return // another engine, whose revisions tell nothing of this one's
	case "thaw":
		l.looked = map[string]bool{}
		l.engine.StartOver(l.at)
		changed = true
	case "configure":
		was := l.checks
		l.checks = drawChecks(t)
		lost := l.engine.Reconfigure(l.checks, l.at)
		changed = true
		l.mustMournLatched(t, was, lost)
		for _, c := range was {
			i := slices.IndexFunc(l.checks, func(n health.Check) bool {
				return n.Name == c.Name && n.Definition == c.Definition && n.Condition == c.Condition
			})
			if i < 0 {
				delete(l.looked, c.Name)
				delete(l.latched, c.Name)
				delete(l.bad, c.Name)
			} else if l.checks[i].Clearing != health.ClearByReboot {
				delete(l.latched, c.Name)
			}
		}
	}
	after := l.engine.Report()
	if !changed && mustJSON2(before) != mustJSON2(after) {
		t.Fatalf("the report changed and nothing said so:\n%+v\n%+v", before, after)
	}
	if l.engine.Revision() == revision && string(mustJSON(l.engine.Snapshot())) != string(snapshot) {
		t.Fatalf("the snapshot changed and its revision did not")
	}
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func mustJSON2(v any) string { return string(mustJSON(v)) }

// mustBeHonest : a condition is True only of what was looked at in this process.
func (l *life) mustBeHonest(t *rapid.T, r health.Report) {
	for i, c := range l.checks {
		s := r.Checks[i]
		if (s.Verdict == health.OK || s.Verdict == health.Degraded || s.Verdict == health.NotApplicable) && s.Reason != health.ReasonPrerequisite && !l.looked[c.Name] {
			t.Fatalf("%s is said to be %s, and nobody looked", c.Name, s.Verdict)
		}
	}
	for _, c := range r.Conditions {
		if c.Status == health.StatusTrue && !slices.ContainsFunc(l.checks, func(m health.Check) bool {
			return l.looked[m.Name] && !m.DryRun && (m.Condition == c.Type || c.Type == health.AggregateType)
		}) {
			t.Fatalf("%s is said to be True, and no check behind it was looked at", c.Type)
		}
		if slices.Contains(r.Pending, c.Type) {
			t.Fatalf("%s is both said and pending", c.Type)
		}
		if c.Reason == health.ReasonPending {
			t.Fatalf("%+v", c)
		}
	}
}

// mustKeepLatched : what was said to be fatal of a check that a reboot clears stays so in that boot, and after it until a
// look comes to something else.
func (l *life) mustKeepLatched(t *rapid.T, r health.Report) {
	for i, c := range l.checks {
		s := r.Checks[i]
		if c.Clearing != health.ClearByReboot || c.Severity == health.SeverityDegraded || c.Severity == health.SeverityInfo {
			delete(l.latched, c.Name)
			continue
		}
		boot, was := l.latched[c.Name]
		if was && s.Verdict != health.Fatal && (boot == l.boot || !l.looked[c.Name]) {
			t.Fatalf("%s lost the fault that it had in boot %d, in boot %d: %+v", c.Name, boot, l.boot, s)
		}
		switch {
		case l.fell == c.Name:
			l.latched[c.Name] = l.boot
		case was && boot != l.boot && l.looked[c.Name]: // whether that look cleared it does not show where it is held or flaps
			delete(l.latched, c.Name)
		case s.Verdict != health.Fatal && s.Reason != health.ReasonPrerequisite:
			delete(l.latched, c.Name)
		}
	}
}

// mustMournLatched : what a change of the configuration loses of latched faults, it gives back.
func (l *life) mustMournLatched(t *rapid.T, was []health.Check, lost []health.Lost) {
	for _, c := range was {
		_, latched := l.latched[c.Name]
		kept := slices.ContainsFunc(l.checks, func(n health.Check) bool {
			return n.Name == c.Name && n.Definition == c.Definition && n.Condition == c.Condition && n.Clearing == health.ClearByReboot
		})
		told := slices.ContainsFunc(lost, func(l health.Lost) bool { return l.Check == c.Name && l.Condition == c.Condition })
		if latched && !kept && !told || kept && told {
			t.Fatalf("of %s, which had a latched fault (%t) and is the same (%t), is told %+v", c.Name, latched, kept, lost)
		}
	}
}

// mustHold : a check with a hold that was said to be fatal is not said to be any better before its end, but where another
// check stands in its way or it is not decided.
func (l *life) mustHold(t *rapid.T, r health.Report) {
	for i, c := range l.checks {
		s := r.Checks[i]
		since, was := l.bad[c.Name]
		switch {
		case c.MinHold == 0:
			delete(l.bad, c.Name)
		case s.Reason == health.ReasonPrerequisite, s.Reason == health.ReasonPending:
		case l.fell == c.Name:
			l.bad[c.Name] = l.at
		case s.Verdict == health.Fatal:
		default:
			if held := l.at.Sub(since); was && held < c.MinHold && c.Severity != health.SeverityDegraded && c.Severity != health.SeverityInfo {
				t.Fatalf("%s is %s after it was fatal for %s of %s", c.Name, s.Verdict, held, c.MinHold)
			}
			delete(l.bad, c.Name)
		}
	}
}

// mustNameOneFault : what is shut out by another check makes nothing worse and is named by nobody but its condition.
func (l *life) mustNameOneFault(t *rapid.T, r health.Report) {
	var without []health.CheckState
	shut := false
	for _, s := range r.Checks {
		if s.Reason == health.ReasonPrerequisite {
			shut = shut || !s.DryRun
			continue
		}
		without = append(without, s)
	}
	if !shut {
		return
	}
	worst := health.Report{Checks: without}.Failing()
	if len(worst) == 0 {
		t.Fatalf("a prerequisite failed, and nothing else did: %+v", r.Checks)
	}
	if r.Summary.Verdict != worst[0].Verdict || r.Summary.Reason != worst[0].Reason {
		t.Fatalf("summary %+v, without what is shut out %+v", r.Summary, worst[0])
	}
	for _, c := range r.Conditions {
		if c.Type == health.AggregateType && c.Reason == health.ReasonPrerequisite {
			t.Fatalf("%+v", c)
		}
	}
}

func TestNoLifeOfAnEngineBreaksItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(drawChecks(t))
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			l.event(t)
			r := l.engine.Report()
			l.mustBeHonest(t, r)
			l.mustKeepLatched(t, r)
			l.mustHold(t, r)
			l.mustNameOneFault(t, r)
		}
	})
}

// What runs dry changes nothing that is said, whatever it finds.
func TestNoDryRunChangesWhatIsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checks := drawChecks(t)
		dry := health.Check{Name: "dry", Condition: "x/A", Thresholds: once, DryRun: true, MinHold: time.Minute, Clearing: health.ClearByReboot}
		with, without := health.NewEngine(append(slices.Clone(checks), dry)), health.NewEngine(checks)
		at := start
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			at = at.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			letter := rapid.SampledFrom([]byte("ofdun")).Draw(t, "look")
			if rapid.Bool().Draw(t, "dry") {
				with.Observe("dry", look(letter), at)
				with.Tick(at)
				without.Tick(at)
			} else {
				name := rapid.SampledFrom(checks).Draw(t, "check").Name
				with.Observe(name, look(letter), at)
				without.Observe(name, look(letter), at)
			}
			a, b := with.Report(), without.Report()
			a.Checks = a.Checks[:len(checks)]
			if mustJSON2(a) != mustJSON2(b) {
				t.Fatalf("with a check that runs dry\n%s\nwithout\n%s", mustJSON(a), mustJSON(b))
			}
		}
	})
}
