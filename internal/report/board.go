package report

import "sync"

// Status says how publishing stands, in a few words for people.
type Status string

const (
	// Undecided : there is nothing to publish yet.
	Undecided Status = "nothing decided yet"
	// Silent : the node's Lease is not ours, so nothing is said.
	Silent Status = "not published: the lease is not held"
	// NoNode : the Node does not exist.
	NoNode Status = "not published: the node is not registered"
	// Published : the API server has the latest.
	Published Status = "published"
	// Failing : the API server could not be given the latest.
	Failing Status = "not published: the API server does not take it"
)

// board holds the status for readers on other goroutines.
type board struct {
	mu     sync.Mutex
	status Status
	down   bool // publishing fails, and it was said
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

func (b *board) rest(decided, holds bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !decided:
		b.status = Undecided
	case !holds:
		b.status = Silent
	default:
		b.status = Published
	}
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
