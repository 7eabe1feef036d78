package fleet

import (
	"fmt"
	"slices"
	"time"
)

// State is the verdict and what it was made from. The zero value is that of a fleet never looked at.
type State struct {
	// Verdict is the one in force, Computed the one that would be without an override.
	Verdict, Computed Verdict
	// Since is when Verdict came into force.
	Since time.Time
	// Reason is one of Reasons, Message says it with numbers.
	Reason, Message string
	// Allowance is how many silences may be acted on now.
	Allowance int

	// acted are the times of the silences acted on within the window, oldest first.
	acted []time.Time
	// calm is since when a milder verdict than Computed would be right; zero while it would not.
	calm time.Time
}

// Resume is the state of a controller that takes over from one that left this computed verdict, which had been graver than
// needed for so long. Durations of two processes add; their clocks are never compared.
func Resume(computed Verdict, calm time.Duration, now time.Time) State {
	s := State{Verdict: computed, Computed: computed, Since: now}
	if calm > 0 {
		s.calm = now.Add(-calm)
	}
	return s
}

// Calm is for how long a milder verdict than the computed one has been right.
func (s State) Calm(now time.Time) time.Duration {
	if s.calm.IsZero() {
		return 0
	}
	return now.Sub(s.calm)
}

// New is how many silences were acted on within the window.
func (s State) New() int { return len(s.acted) }

// Act notes that a silence is acted on. The caller keeps to Allowance.
func (s State) Act(now time.Time) State {
	s.acted = append(s.acted, now) // Assess clones it
	s.Allowance--
	return s
}

// Assess judges the fleet. A graver verdict counts at once, a milder one after the cooldown. forgive is true when silence is
// acted on again after it was not: every silence not yet acted on is then to be timed anew, since nobody knows what happened
// meanwhile. now must come from a monotonic clock.
func Assess(prev State, seen Observation, now time.Time, policy Policy) (next State, forgive bool) {
	limits := policy.Limits
	next = prev
	next.acted = slices.DeleteFunc(slices.Clone(prev.acted), func(at time.Time) bool { return now.Sub(at) >= limits.Window })
	everyone := seen.Agents + len(next.acted) // those acted on are no longer expected to be heard
	left := max(0, limits.Allowed(everyone)-len(next.acted))

	needed, reason, message := need(seen, next, everyone, left, limits)
	switch {
	case needed.gravity() >= prev.Computed.gravity():
		next.Computed, next.calm = needed, time.Time{}
		next.Reason, next.Message = reason, message
	case prev.calm.IsZero():
		next.calm = now
	case now.Sub(prev.calm) >= limits.Cooldown:
		next.Computed, next.calm = needed, time.Time{}
		next.Reason, next.Message = reason, message
	}
	if next.Reason == "" { // resumed, and calm since
		next.Reason, next.Message = ReasonAgentsHeard, "the controller before this one had come to this verdict"
	}

	next.Verdict = next.Computed
	next.Allowance = left
	overridden := policy.Override.InForce(now)
	if overridden {
		next.Verdict = policy.Override.Verdict
		if next.Verdict == Normal { // somebody answers for it
			next.Allowance = max(left, seen.Waiting)
		}
	}
	if !next.Verdict.Acts() || !seen.Sight.Proven {
		next.Allowance = 0
	}
	if next.Verdict != prev.Verdict {
		next.Since = now
	}
	forgive = prev.Verdict != "" && !prev.Verdict.Acts() && next.Verdict.Acts() && !overridden ||
		prev.Computed == Blind && next.Computed != Blind && !overridden
	return next, forgive
}

// need is the verdict that an observation calls for by itself.
func need(seen Observation, state State, everyone, left int, limits Limits) (verdict Verdict, reason, message string) {
	lost := seen.Stale + len(state.acted)
	switch {
	case seen.Sight.Lost != "":
		return Blind, seen.Sight.Lost, seen.Sight.Message
	case limits.suspends(lost, everyone):
		return Suspended, ReasonManyStale, fmt.Sprintf("%d of %d agents fell silent or let their lease run out, more than %d%%", lost, everyone, limits.SuspendAbovePercent)
	case seen.Waiting > left:
		return Partial, ReasonLimitReached, fmt.Sprintf("%d agents are silent beyond the %d that may become Unknown within %s", seen.Waiting-left, limits.Allowed(everyone), limits.Window)
	}
	return Normal, ReasonAgentsHeard, "each silence is acted on"
}
