package heartbeat

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Defaults, and the kubelet's proportions: a holder may miss three beats.
const (
	DefaultInterval      = 10 * time.Second
	DefaultLeaseDuration = 40 * time.Second
)

// State is where the heartbeat stands.
type State string

const (
	// Starting : no beat has been tried yet.
	Starting State = "Starting"
	// WaitingForNode : the Node does not exist, so that a Lease would have no owner.
	WaitingForNode State = "WaitingForNode"
	// Holding : the last beat was stored.
	Holding State = "Holding"
	// Failing : the last beat could not be stored.
	Failing State = "Failing"
	// Stalled : checks make no progress, so that nothing is renewed.
	Stalled State = "Stalled"
	// IdentityConflict : another living agent holds the Lease of this node.
	IdentityConflict State = "IdentityConflict"
)

// Status is what is known of the heartbeat.
type Status struct {
	State State
	// Detail says why, when State is not Holding: an error, or the other holder.
	Detail string
	// NodeUID is that of the Node the Lease goes with, empty until it was seen.
	NodeUID types.UID
}

// board holds the status for readers on other goroutines.
type board struct {
	mu     sync.Mutex
	status Status
	// renewed is when the last beat that was stored was sent, by our clock; zero: none was.
	renewed time.Time
}

func (b *board) read() (Status, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status, b.renewed
}

// set replaces the status and returns the one before. A zero renewed leaves the time of the last beat as it is.
func (b *board) set(s Status, renewed time.Time) (before Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.status
	b.status = s
	if !renewed.IsZero() {
		b.renewed = renewed
	}
	return before
}

// progress watches a counter for standing still.
type progress struct {
	count uint64
	moved time.Time
}

// stalled reports whether the counter has stood still for longer than limit.
func (p *progress) stalled(count uint64, now time.Time, limit time.Duration) bool {
	if p.moved.IsZero() || count != p.count {
		p.count, p.moved = count, now
	}
	return now.Sub(p.moved) > limit
}
