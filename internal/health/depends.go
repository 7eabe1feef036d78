package health

import "time"

// gate says whether the checks that a check depends on let it speak.
type gate int

const (
	open gate = iota
	// waiting : one of them is not decided yet. Looks count, and nothing is said.
	waiting
	// shut : one of them is fatal or unknown. Looks do not count, since they see that fault and not one of their own.
	shut
)

// dependencies are the checks by number: of each those it needs, and all of them in an order in which none comes before
// one it needs. A check that needs itself by a circle does not need the one that closes it; the configuration refuses
// circles.
func dependencies(checks []Check, index map[string]int) (needs [][]int, order []int) {
	const (
		untouched = iota
		entered
		done
	)
	needs, order = make([][]int, len(checks)), make([]int, 0, len(checks))
	state := make([]int, len(checks))
	var enter func(i int)
	enter = func(i int) {
		state[i] = entered
		for _, name := range checks[i].DependsOn {
			j, ok := index[name]
			if !ok || checks[j].DryRun || state[j] == entered {
				continue
			}
			if state[j] == untouched {
				enter(j)
			}
			needs[i] = append(needs[i], j)
		}
		state[i] = done
		order = append(order, i)
	}
	for i := range checks {
		if state[i] == untouched {
			enter(i)
		}
	}
	return needs, order
}

// gate says whether the checks that this one needs let it speak, and which of them does not. A check that is itself shut
// out passes on the name of the one whose fault that is.
func (e *Engine) gate(i int) (gate, string) {
	state, blocker := open, ""
	for _, j := range e.needs[i] {
		switch s := e.standings[j]; {
		case s.gate == shut && !s.latched:
			return shut, s.blocker
		case !e.decided[j]:
			if state == open {
				state, blocker = waiting, e.checks[j].Name
			}
		case e.view[j].Verdict == Fatal || e.view[j].Verdict == Unknown:
			return shut, e.checks[j].Name
		}
	}
	return state, blocker
}

// pass moves a check's gate. One that was shut looks afresh when it no longer is: what it saw meanwhile was another's
// fault.
func (s *standing) pass(c *Check, to gate, blocker string, at time.Time) {
	was := s.gate
	s.gate, s.blocker = to, blocker
	switch {
	case to == shut && was != shut:
		s.shutSince = at
	case to != shut && was == shut:
		s.startOver(c, at)
	}
}

// view is what is to be said of a check, and whether it is decided.
func (s *standing) view(c *Check) (CheckState, bool) {
	state := CheckState{Name: c.Name, DryRun: c.DryRun}
	switch {
	case s.latched && s.utterable():
		// Established before, and so no question of what its prerequisites let it see now.
		state.Result, state.Since = s.shown, s.since
	case s.gate == shut:
		state.Result = Result{Verdict: Unknown, Reason: ReasonPrerequisite, Message: "depends on check " + s.blocker + ", which is not well"}
		if c.Severity == SeverityDegraded || c.Severity == SeverityInfo {
			// It may make nothing Unknown, and nothing True either, which nobody looked at.
			state.Verdict = NotApplicable
		}
		state.Since = s.shutSince
		return state, true
	case s.gate == waiting:
		state.Result, state.Since = pending(), s.looks.Since()
		state.Message = "waits for check " + s.blocker
		return state, false
	case s.utterable():
		state.Result, state.Since = s.shown, s.since
	default:
		state.Result, state.Since = pending(), s.looks.Since()
		return state, false
	}
	return state, true
}
