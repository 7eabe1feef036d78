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
	// Fault is Detail in words that do not change from beat to beat, when State is Failing.
	Fault string
	// Impaired : State is Failing, for two intervals or longer, though the API server answers other calls.
	Impaired bool
	// NodeUID is that of the Node the Lease goes with, as last seen; empty until it was.
	NodeUID types.UID
}

// Beats are figures of the beats of this process.
type Beats struct {
	// Tried and Stored count beats, not the tries of each.
	Tried, Stored uint64
	// Renewed is when the last beat that was stored was sent; zero: none was. Latency is how long its answer took.
	Renewed time.Time
	Latency time.Duration
	// Since is when the state of now began.
	Since time.Time
}

// board holds the status for readers on other goroutines.
type board struct {
	mu     sync.Mutex
	status Status
	beats  Beats
}

func (b *board) read() (Status, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status, b.beats.Renewed
}

func (b *board) figures() Beats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beats
}

// lastOr is when the last beat that was stored was sent, or began when there was none.
func (b *board) lastOr(began time.Time) time.Time {
	if _, last := b.read(); !last.IsZero() {
		return last
	}
	return began
}

// set takes in what a beat came to and returns the status before. A zero renewed says that nothing was stored.
func (b *board) set(s Status, renewed, now time.Time) (before Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.status
	b.status = s
	if s.State != before.State || b.beats.Since.IsZero() {
		b.beats.Since = now
	}
	b.beats.Tried++
	if !renewed.IsZero() {
		b.beats.Stored++
		b.beats.Renewed, b.beats.Latency = renewed, now.Sub(renewed)
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
