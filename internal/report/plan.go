package report

import "time"

// Step is what the reporter does next.
type Step string

const (
	// Rest : nothing to do until something changes.
	Rest Step = "rest"
	// ReadNode : the node's UID and conditions must be known before they are written.
	ReadNode Step = "read node"
	// RemoveLeftovers : the node has conditions of ours that are not wanted any more and that an apply would leave behind.
	RemoveLeftovers Step = "remove leftovers"
	// ApplyNode : the node's conditions are not what they should be.
	ApplyNode Step = "apply node"
	// ApplyAgent : the node is to be told of the agent alone; all else stays as it is.
	ApplyAgent Step = "apply agent"
	// ApplyHost : the Host's status is not what it should be.
	ApplyHost Step = "apply host"
)

// Lease is how the node's Lease stands.
type Lease string

const (
	// Lost : it is not ours, or we cannot tell.
	Lost Lease = ""
	// Held : it is ours.
	Held Lease = "held"
	// Impaired : the API server answers, but does not let us renew it.
	Impaired Lease = "impaired"
)

// Facts are what a step is decided on.
type Facts struct {
	Lease Lease
	// Decided : there is something to say of the node.
	Decided bool
	// NodeKnown : the node was read and nothing makes us doubt what was.
	NodeKnown bool
	// NodeFresh : it was read since we last wrote to it.
	NodeFresh bool
	// Mixed : what is to be written depends on what stands there: some of it is kept, or some of it goes.
	Mixed bool
	// Leftovers : the node as read has conditions of ours that an apply would leave behind.
	Leftovers bool
	// NodeRight : the node says what it should, as far as is known.
	NodeRight bool
	// AgentRight : the node was told of the agent, or there is nothing to tell.
	AgentRight bool
	// HostDecided : all is decided, or was waited for long enough.
	HostDecided bool
	// HostOurs : the Host exists and is that of our node.
	HostOurs bool
	// RuntimeKnown : what the Host says of the runtime has been found out.
	RuntimeKnown bool
	// HostRight : the Host says what it should, as far as is known.
	HostRight bool
}

// Next decides. The order matters: a Host that says Ready=True promises that the node is right.
func Next(f Facts) Step {
	switch f.Lease {
	case Held:
		return nextHeld(f)
	case Impaired:
		return nextImpaired(f)
	default:
		return Rest
	}
}

func nextHeld(f Facts) Step {
	switch {
	case !f.Decided:
		return Rest
	case !f.NodeKnown:
		return ReadNode
	case f.NodeFresh && f.Leftovers:
		return RemoveLeftovers
	case !f.NodeRight && f.Mixed && !f.NodeFresh:
		return ReadNode
	case !f.NodeRight:
		return ApplyNode
	case f.HostDecided && f.HostOurs && f.RuntimeKnown && !f.HostRight:
		return ApplyHost
	default:
		return Rest
	}
}

func nextImpaired(f Facts) Step {
	switch {
	case f.AgentRight:
		return Rest
	case !f.NodeKnown, !f.NodeFresh:
		return ReadNode
	default:
		return ApplyAgent
	}
}

// Coalescing of changes: one write for all that change together, and no long wait for one that keeps changing.
const (
	quiet       = time.Second
	longestWait = 10 * time.Second
)

// ripe is when a change that is not written yet should be: quiet after the last one, longestWait after the first.
func ripe(first, last time.Time) time.Time {
	due := last.Add(quiet)
	if limit := first.Add(longestWait); limit.Before(due) {
		return limit
	}
	return due
}

// decisionWait is how long the Host waits for checks that have not come to a verdict. After that it shows them as
// unknown, and the node no longer says AgentSilent of an agent that speaks.
const decisionWait = 30 * time.Second

// sleepWait is between two looks whether checks are being looked at again.
const sleepWait = time.Second

// Waits after a failed call.
const (
	firstBackoff   = time.Second
	longestBackoff = 30 * time.Second
)

// outdatedTries is how many times in a row a write is repeated at once because the node changed since it was read.
const outdatedTries = 5

// backoff is the wait after that many failures in a row (at least 1): doubling, of which a random share between half
// and all is waited (chance is between 0 and 1), and never less than the server asked for.
func backoff(failures int, asked time.Duration, chance float64) time.Duration {
	wait := longestBackoff
	if failures < 6 { // 2^5 s is beyond the longest
		wait = min(firstBackoff<<(failures-1), longestBackoff)
	}
	return max(wait/2+time.Duration(chance*float64(wait/2)), asked)
}

// soonest is the shortest of waits of which 0 means none.
func soonest(waits ...time.Duration) time.Duration {
	first := time.Duration(0)
	for _, w := range waits {
		if w > 0 && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}
