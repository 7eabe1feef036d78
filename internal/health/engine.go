package health

import (
	"slices"
	"strings"
	"time"
)

// AggregateType is the condition that sums up every check of the machine.
const AggregateType = "fettle.dev/Healthy"

// Engine holds where every check stands and says what follows for the machine. It is not safe for concurrent use: one
// goroutine observes and reports.
type Engine struct {
	checks []Check
	states map[string]State
	// summary is kept because Since must survive from report to report.
	summary Summary
}

// NewEngine starts with every check pending. Names must be unique and thresholds at least 1; a threshold below 1 counts
// as 1.
func NewEngine(checks []Check) *Engine {
	e := &Engine{checks: slices.Clone(checks), states: make(map[string]State, len(checks))}
	for _, c := range checks {
		e.states[c.Name] = State{}
	}
	e.summary = summarise(e.settled())
	return e
}

// StartOver forgets every look: all checks are pending again, and nothing is said until they are decided anew.
func (e *Engine) StartOver() { *e = *NewEngine(e.checks) }

// Observe folds one look into the check's state. changed says whether Report now says something else than before.
// A result of an unknown name is ignored: its check was taken out of the configuration while the look ran.
func (e *Engine) Observe(name string, r Result, at time.Time) (changed bool) {
	i := slices.IndexFunc(e.checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		return false
	}
	prev := e.states[name]
	next := Step(prev, r, e.checks[i].Thresholds, at)
	e.states[name] = next
	if next.Settled() == prev.Settled() && next.Since().Equal(prev.Since()) && next.Decided() == prev.Decided() {
		return false
	}
	now := summarise(e.settled())
	now.Since = e.summary.Since
	if now.Verdict != e.summary.Verdict || now.Reason != e.summary.Reason || now.Since.IsZero() {
		now.Since = at
	}
	e.summary = now
	return true
}

// Unsettled says whether the check should be looked at again soon: it is not decided yet, or its last look disagrees
// with where it stands.
func (e *Engine) Unsettled(name string) bool {
	s, ok := e.states[name]
	return ok && s.Unsettled()
}

// Report says what is to be said of the machine now.
func (e *Engine) Report() Report {
	states := e.settled()
	report := Report{Decided: true, Checks: states, Summary: e.summary, Conditions: conditions(e.checks, states)}
	for _, s := range e.states {
		report.Decided = report.Decided && s.Decided()
	}
	for _, s := range states {
		report.Counts.add(s.Verdict)
	}
	return report
}

func (e *Engine) settled() []CheckState {
	states := make([]CheckState, 0, len(e.checks))
	for _, c := range e.checks {
		s := e.states[c.Name]
		states = append(states, CheckState{Name: c.Name, Result: s.Settled(), Since: s.Since()})
	}
	return states
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

// Failing returns the checks that are degraded, fatal or unknown, worst first, then by name.
func (r Report) Failing() []CheckState { return failing(r.Checks) }

func failing(states []CheckState) []CheckState {
	var bad []CheckState
	for _, s := range states {
		if s.Verdict != OK && s.Verdict != NotApplicable {
			bad = append(bad, s)
		}
	}
	slices.SortFunc(bad, func(a, b CheckState) int {
		if d := rankOf(b.Verdict) - rankOf(a.Verdict); d != 0 {
			return int(d)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return bad
}

// summarise leaves Since to the engine, which knows what was said before.
func summarise(states []CheckState) Summary {
	if bad := failing(states); len(bad) > 0 {
		return Summary{Verdict: bad[0].Verdict, Reason: bad[0].Reason}
	}
	for _, s := range states {
		if s.Verdict == OK {
			return Summary{Verdict: OK}
		}
	}
	return Summary{Verdict: NotApplicable}
}
