package liveness

import "time"

// Progress is what an agent changes with every beat. Its parts are compared, never interpreted: a clock that steps back
// still makes progress, and a label on the lease does not. The zero value says that there is no lease.
type Progress struct {
	RenewTime string
	Holder    string
}

// Observation is one look at an agent.
type Observation struct {
	// UID of the Host that the agent reports for. One recreated under the same name is another agent.
	UID      string
	Progress Progress
	// Reported is true when the Host's status says that an agent reported once.
	Reported bool
}

// History is what is remembered of an agent. The zero value is that of an agent never looked at.
type History struct {
	UID      string
	Progress Progress
	// LastChange is when progress was last observed, or when the agent was first looked at.
	LastChange time.Time
	// Heard is true once progress was observed; the first look does not count, since what it shows may be old.
	Heard bool
	// Reported as of the last observation.
	Reported bool
}

// Limits say how long silence may last.
type Limits struct {
	// Grace is how long an agent may make no progress before it is silent.
	Grace time.Duration
	// StartupGrace is how long an agent that never reported may take to appear.
	StartupGrace time.Duration
}

// State is what is known of an agent.
type State string

const (
	// Starting : nothing was heard yet, and it is too early to make something of it.
	Starting State = "Starting"
	// Alive : progress was observed within the grace period.
	Alive State = "Alive"
	// Silent : no progress for longer than the grace period.
	Silent State = "Silent"
	// Overdue : no progress for longer than the grace period, and nothing may follow from it: the agent is away on purpose, its
	// silence is not confirmed yet, or the fleet's verdict or its limit forbids. Observe never says so; who carries its verdicts
	// out does.
	Overdue State = "Overdue"
	// NeverReported : no agent appeared within the startup grace period.
	NeverReported State = "NeverReported"
)

// States are all of them.
var States = []State{Starting, Alive, Overdue, Silent, NeverReported}

// Quiet reports whether the state follows from silence.
func (s State) Quiet() bool { return s == Silent || s == NeverReported }

// Verdict is a state and what goes with it.
type Verdict struct {
	State State
	// Since is when the silence began, for states that follow from silence. It tells one silence from the next.
	Since time.Time
}

// Observe folds one observation of an agent into its history and says what is known of the agent now.
// now must come from a monotonic clock. Source: spec/pool-health, "Detecting Unresponsive MachinePools".
func Observe(prev History, seen Observation, now time.Time, limits Limits) (History, Verdict) {
	next := prev
	next.Reported = seen.Reported
	switch {
	case prev.UID != seen.UID:
		next = History{UID: seen.UID, Progress: seen.Progress, LastChange: now, Reported: seen.Reported}
	case seen.Progress != prev.Progress && seen.Progress != Progress{}:
		next.Progress, next.LastChange, next.Heard = seen.Progress, now, true
	case seen.Reported && !prev.Reported: // it has just appeared; its lease will follow
		next.LastChange = now
	}
	return next, next.judge(now, limits)
}

// Resume is the history of an agent that a controller before this one had heard of, and whose progress it had seen unchanged
// for so long. It counts only while the progress is still the same. Durations of two processes add; the time between
// them is not counted, and their clocks are never compared.
func Resume(uid string, unchanged Progress, stale time.Duration, now time.Time) History {
	return History{UID: uid, Progress: unchanged, LastChange: now.Add(-stale), Heard: true, Reported: true}
}

// Excuse restarts the timers of an agent that may have been heard by others than us: while we were blind, time does not
// count.
func Excuse(prev History, now time.Time) History {
	prev.LastChange = now
	return prev
}

func (h History) judge(now time.Time, limits Limits) Verdict {
	early, late, patience := Starting, NeverReported, limits.StartupGrace
	switch {
	case h.Heard:
		early, late, patience = Alive, Silent, limits.Grace
	case h.Reported:
		late, patience = Silent, limits.Grace
	}
	if now.Sub(h.LastChange) <= patience {
		return Verdict{State: early}
	}
	return Verdict{State: late, Since: h.LastChange}
}
