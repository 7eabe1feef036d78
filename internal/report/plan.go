package report

import "time"

// Step is what the reporter does next.
type Step string

const (
	// Rest : nothing to do until something changes.
	Rest Step = "rest"
	// ReadNode : the node's UID and conditions must be known before they are written.
	ReadNode Step = "read node"
	// ApplyNode : the node's conditions are not what they should be.
	ApplyNode Step = "apply node"
	// ApplyHost : the Host's status is not what it should be.
	ApplyHost Step = "apply host"
)

// Facts are what a step is decided on.
type Facts struct {
	// Decided : every check has come to a verdict.
	Decided bool
	// Holds : the node's Lease is ours.
	Holds bool
	// NodeKnown : the node was read and nothing makes us doubt what was.
	NodeKnown bool
	// NodeRight : the node says what it should, as far as is known.
	NodeRight bool
	// HostOurs : the Host exists and is that of our node.
	HostOurs bool
	// RuntimeKnown : what the Host says of the runtime has been found out.
	RuntimeKnown bool
	// HostRight : the Host says what it should, as far as is known.
	HostRight bool
}

// Next decides. The order matters: a Host that says Ready=True promises that the node is right.
func Next(f Facts) Step {
	switch {
	case !f.Decided, !f.Holds:
		return Rest
	case !f.NodeKnown:
		return ReadNode
	case !f.NodeRight:
		return ApplyNode
	case f.HostOurs && f.RuntimeKnown && !f.HostRight:
		return ApplyHost
	default:
		return Rest
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

// sleepWait is between two looks whether checks are being looked at again.
const sleepWait = time.Second

// Waits after a failed call.
const (
	firstBackoff   = time.Second
	longestBackoff = 30 * time.Second
)

// backoff is the wait after that many failures in a row (at least 1): doubling, of which a random share between half
// and all is waited (chance is between 0 and 1), and never less than the server asked for.
func backoff(failures int, asked time.Duration, chance float64) time.Duration {
	wait := longestBackoff
	if failures < 6 { // 2^5 s is beyond the longest
		wait = min(firstBackoff<<(failures-1), longestBackoff)
	}
	return max(wait/2+time.Duration(chance*float64(wait/2)), asked)
}
