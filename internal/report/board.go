package report

import (
	"sync"
	"time"
)

// Status says how publishing stands, in a few words for people.
type Status string

const (
	// Undecided : there is nothing to publish yet.
	Undecided Status = "nothing decided yet"
	// Silent : the node's Lease is not ours, so nothing is said.
	Silent Status = "not published: the lease is not held"
	// AgentAlone : the Lease cannot be renewed, so that nothing is said but that.
	AgentAlone Status = "not published: the lease cannot be renewed"
	// NoNode : the Node does not exist.
	NoNode Status = "not published: the node is not registered"
	// Published : the API server has the latest.
	Published Status = "published"
	// Failing : the API server could not be given the latest.
	Failing Status = "not published: the API server does not take it"
)

// board holds the status for readers on other goroutines.
type board struct {
	mu      sync.Mutex
	status  Status
	down    bool      // publishing fails, and it was said
	applied time.Time // when conditions were last written; zero: they were not
}

// LastApplied is when this reporter last wrote conditions to the Node, or found them there as they should be; zero: it has
// not yet.
func (r *Reporter) LastApplied() time.Time {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return r.board.applied
}

// Status says how publishing stands.
func (r *Reporter) Status() Status {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	if r.board.status == "" {
		return Undecided
	}
	return r.board.status
}

// rest notes that there is nothing to do, and reports whether that is because all is said.
func (b *board) rest(f Facts, now time.Time) (said bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !f.Decided:
		b.status = Undecided
	case f.Lease == Impaired:
		b.status = AgentAlone
	case f.Lease != Held:
		b.status = Silent
	default:
		if b.status != Published {
			b.applied = now
		}
		b.status = Published
	}
	return b.status == Published
}

func (b *board) appliedAt(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied = now
}

// waits notes that the Node is not there, which is no fault of ours.
func (b *board) waits() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = NoNode
}

// failed reports whether this is news.
func (b *board) failed() (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = !b.down
	b.status, b.down = Failing, true
	return news
}

// succeeded reports whether this is news.
func (b *board) succeeded() (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news = b.down
	b.down = false
	return news
}
