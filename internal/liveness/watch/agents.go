package watch

import (
	"time"

	"github.com/fettle-dev/fettle/internal/liveness"
)

// agent is what is known of one agent. Only the goroutine of Watch.Start touches it.
type agent struct {
	node     string
	host     string // UID; empty while there is no Host
	reported bool
	progress liveness.Progress
	// duration is how long the lease lasts without a beat, asks the silence that it allows for; zero without a lease.
	duration, asks time.Duration

	// met is when the Host was first seen.
	met     time.Time
	history liveness.History
	// verdict is what follows from the history; said, and saidOf the process, is what others know.
	verdict, said liveness.Verdict
	saidOf        Process
	// known is true while the silence is one that the cluster was told of before this controller looked.
	known bool
	// acted is true while the agent's silence is acted on.
	acted bool
	// confirming is true while a live read of the lease is under way.
	confirming bool
}

func (a *agent) observation() liveness.Observation {
	return liveness.Observation{UID: a.host, Progress: a.progress, Reported: a.reported}
}

// process is what is known of the process that holds the lease.
func (a *agent) process(limits liveness.Limits) Process {
	return Process{Holder: a.progress.Holder, Heard: a.history.LastChange.After(a.met) && a.history.Heard, Late: a.met.Add(a.patience(limits))}
}

// absent reports whether no agent ever appeared.
func (a *agent) absent() bool { return !a.history.Heard && !a.history.Reported }

// expected reports whether the agent should be heard. Others tell nothing about the fleet.
func (a *agent) expected() bool { return !a.absent() && !a.known && !a.acted }

func (a *agent) unchangedFor(now time.Time) time.Duration { return now.Sub(a.history.LastChange) }

// stale reports whether the agent has let its lease run out. One without a lease is given as much of the grace period as a
// lease usually takes of it.
func (a *agent) stale(now time.Time, limits liveness.Limits) bool {
	duration := a.duration
	if duration == 0 {
		duration = limits.Grace * 4 / 5
	}
	return a.unchangedFor(now) > duration
}

// patience is how long the agent may take for a beat.
func (a *agent) patience(limits liveness.Limits) time.Duration { return max(a.asks, limits.Grace) / 4 }

// late reports whether the agent has missed a beat: it is worth remembering for the next leader.
func (a *agent) late(now time.Time, limits liveness.Limits) bool {
	return a.unchangedFor(now) > a.patience(limits)
}
