package health

import (
	"slices"
	"time"
)

// AggregateType is the condition that sums up every check of the machine.
const AggregateType = "fettle.dev/Healthy"

// Engine holds where every check stands and says what follows for the machine. It is not safe for concurrent use: one
// goroutine observes and reports.
//
// Times come from one clock and do not run backwards; use times with a monotonic reading.
type Engine struct {
	bootID string

	checks []Check
	index  map[string]int // by name
	groups []group
	needs  [][]int
	order  []int

	standings []standing // in the order of checks, like view and decided
	view      []CheckState
	decided   []bool
	summary   Summary
	revision  uint64
}

// NewEngine starts with every check pending. Names must be unique and thresholds at least 1; a threshold below 1 counts
// as 1.
func NewEngine(checks []Check) *Engine {
	e := &Engine{}
	e.configure(checks)
	e.settle(time.Time{})
	return e
}

// configure sets the checks, and starts each anew.
func (e *Engine) configure(checks []Check) {
	e.checks = slices.Clone(checks)
	e.index = make(map[string]int, len(checks))
	for i, c := range e.checks {
		e.index[c.Name] = i
	}
	e.groups = groupsOf(e.checks)
	e.needs, e.order = dependencies(e.checks, e.index)
	e.standings = make([]standing, len(checks))
	e.view = make([]CheckState, len(checks))
	e.decided = make([]bool, len(checks))
}

// Reconfigure changes the checks. One that keeps its name, condition and definition goes on from where it stands, with
// its new thresholds and rules; any other starts anew, and one that is gone is forgotten. Latched faults that get lost by
// that are given back.
func (e *Engine) Reconfigure(checks []Check, at time.Time) (lost []Lost) {
	was, index, standings := e.checks, e.index, e.standings
	e.configure(checks)
	for j, s := range standings {
		if s.latched && !e.keepsLatch(was[j].Name, was[j].Condition, was[j].Definition) {
			lost = append(lost, Lost{Check: was[j].Name, Condition: was[j].Condition, Latch: s.latch})
		}
	}
	for i, c := range e.checks {
		j, ok := index[c.Name]
		if !ok || was[j].Condition != c.Condition || was[j].Definition != c.Definition {
			continue
		}
		e.standings[i] = standings[j]
		e.standings[i].settled = false
		// What a check may count as at most holds at once, also where it is held.
		e.standings[i].shown = c.Severity.cap(e.standings[i].shown)
	}
	e.settle(at)
	e.revision++
	return lost
}

// keepsLatch reports whether there is a check which a latch of that one goes on holding.
func (e *Engine) keepsLatch(name, condition, definition string) bool {
	i, ok := e.index[name]
	return ok && e.checks[i].Condition == condition && e.checks[i].Definition == definition && e.checks[i].Clearing == ClearByReboot
}

// StartOver forgets every look: nothing is said of a check until it is decided anew, but that it is fatal or unknown where
// that is latched or held.
func (e *Engine) StartOver(at time.Time) {
	for i := range e.standings {
		e.standings[i].startOver(&e.checks[i], at)
	}
	e.settle(at)
	e.revision++
}

// Observe folds one look into the check's state. changed says whether Report now says something else than before.
// A result of an unknown name is ignored: its check was taken out of the configuration while the look ran.
func (e *Engine) Observe(name string, r Result, at time.Time) (changed bool) {
	i, ok := e.index[name]
	if !ok {
		return false
	}
	if s := &e.standings[i]; s.gate != shut {
		s.observe(&e.checks[i], r, at)
	}
	return e.settle(at)
}

// Tick takes in what the time brought: holds that end, verdicts that grow stale. It is due at NextTick.
func (e *Engine) Tick(at time.Time) (changed bool) { return e.settle(at) }

// NextTick is when Tick may change something without a look before it; false: never.
func (e *Engine) NextTick() (time.Time, bool) {
	var next time.Time
	for i := range e.standings {
		if wake := e.standings[i].wake; !wake.IsZero() && (next.IsZero() || wake.Before(next)) {
			next = wake
		}
	}
	return next, !next.IsZero()
}

// settle brings every check to where it stands at a moment, each after those it depends on. Most stand where they did:
// there was no look, no time has come, and what they depend on stands where it did.
func (e *Engine) settle(at time.Time) (changed bool) {
	for _, i := range e.order {
		c, s := &e.checks[i], &e.standings[i]
		gate, blocker := e.gate(i)
		if s.settled && gate == s.gate && blocker == s.blocker && (s.wake.IsZero() || at.Before(s.wake)) {
			continue
		}
		before := s.mark()
		s.pass(c, gate, blocker, at)
		s.settled, s.wake = true, time.Time{}
		if s.gate == open {
			s.advance(c, e.bootID, at)
		}
		if s.mark() != before {
			e.revision++
		}
		view, decided := s.view(c)
		changed = changed || view != e.view[i] || decided != e.decided[i]
		e.view[i], e.decided[i] = view, decided
	}
	if changed {
		e.summarise(at)
	}
	return changed
}

// Unsettled says whether the check should be looked at again soon: it is not decided yet, or its last look disagrees
// with where it stands.
func (e *Engine) Unsettled(name string) bool {
	i, ok := e.index[name]
	return ok && e.standings[i].gate != shut && e.standings[i].looks.Unsettled()
}

// Report says what is to be said of the machine now. It shares nothing with the engine.
func (e *Engine) Report() Report {
	report := Report{Decided: true, Checks: slices.Clone(e.view), Summary: e.summary}
	report.Conditions, report.Pending = e.conditions()
	for i, s := range e.view {
		if s.DryRun {
			continue
		}
		report.Decided = report.Decided && e.decided[i]
		report.Counts.add(s.Verdict)
	}
	return report
}

func (c *Counts) add(v Verdict) {
	switch v {
	case OK:
		c.OK++
	case Degraded:
		c.Degraded++
	case Fatal:
		c.Fatal++
	case NotApplicable:
		c.NotApplicable++
	default:
		c.Unknown++
	}
}

// summarise sums up what is said of all checks at a moment.
func (e *Engine) summarise(at time.Time) {
	now := Summary{Verdict: NotApplicable}
	var worst *CheckState
	seen := false
	for i := range e.view {
		s := &e.view[i]
		seen = seen || !s.DryRun && !s.Since.IsZero()
		switch {
		case s.DryRun:
		case s.fails():
			if s.Reason != ReasonPrerequisite && (worst == nil || worstFirst(*s, *worst) < 0) {
				worst = s
			}
		case s.Verdict == OK:
			now.Verdict = OK
		}
	}
	if worst != nil {
		now = Summary{Verdict: worst.Verdict, Reason: worst.Reason}
	}
	switch {
	case now.Reason != ReasonPending:
		now.Since = e.soSince(now)
	case now.Verdict == e.summary.Verdict && now.Reason == e.summary.Reason && !e.summary.Since.IsZero():
		now.Since = e.summary.Since
	case seen: // what is pending came to nothing yet, and has no time of its own
		now.Since = at
	}
	e.summary = now
}

// soSince is since when the machine is so: what is worst, since the first of the checks that say it came to say it; well,
// since the last of all checks came to be well or not to apply.
func (e *Engine) soSince(now Summary) (since time.Time) {
	for i := range e.view {
		s := &e.view[i]
		bad := now.Reason != ""
		switch {
		case s.DryRun || bad && (s.Verdict != now.Verdict || s.Reason != now.Reason):
		case since.IsZero(), bad && s.Since.Before(since), !bad && s.Since.After(since):
			since = s.Since
		}
	}
	return since
}
