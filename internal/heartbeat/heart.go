package heartbeat

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/kubeclient"
)

const (
	// jitter lengthens every wait by up to this share of it, so that a fleet started together drifts apart.
	jitter = 0.04
	// tries is how often one beat is tried before the next is waited for; as the kubelet.
	tries = 5
	// firstPause is the wait before the second try of a beat; it doubles from there.
	firstPause = 100 * time.Millisecond
	// firstNodeWait and longestNodeWait bound the waits for a Node that does not exist.
	firstNodeWait   = time.Second
	longestNodeWait = 10 * time.Second
)

// API is what a heartbeat asks of the API server. Every call must bring its own deadline, at most half an interval.
type API interface {
	Node(ctx context.Context, name string) (kubeclient.Node, error)
	Lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease, o kubeclient.ApplyOptions) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	DropConnections()
}

// conflictLooks is how many times in each interval a foreign holder is looked at, so that its end is not noticed late.
const conflictLooks = 4

// Options of a heartbeat.
type Options struct {
	// Namespace of the Lease; its name is Node.
	Namespace, Node string
	// Holder is our holderIdentity, <node>_<uuid>, new for every process.
	Holder string
	// StateDir is where the identity is remembered for our successor. Empty: it is not, and the successor waits for
	// three beats to be missed.
	StateDir string
	// Interval between beats. LeaseDuration is published and must be longer.
	Interval, LeaseDuration time.Duration
	// Progress counts what the scheduler of checks has done. Once it stands still for StallAfter, nothing is renewed.
	Progress   func() uint64
	StallAfter time.Duration
	// Reapply is called when what was said of the node may be lost or outdated: at the first beat, after a gap longer
	// than LeaseDuration, after a conflict, and when the Lease vanished or the Node is another. It must not block.
	Reapply func(why string)
	// Changed is called after every change of status. It must not block.
	Changed func(Status)
	Log     *slog.Logger
}

// Heart is the heartbeat of one node.
type Heart struct {
	o   Options
	api API

	board board
	// nodeInDoubt asks the next beat to read the Node again.
	nodeInDoubt atomic.Bool
	wake        chan struct{}

	// What follows belongs to the loop alone.
	self     Self
	memory   memory
	progress progress
	began    time.Time             // when Run was called
	owner    Owner                 // its UID is empty when the Node must be read
	knownUID types.UID             // of the Node seen last
	lease    *coordinationv1.Lease // as last stored; nil: must be read or made
	unread   bool                  // lease must be read before it is decided about
	sighting Sighting
	// impairment is of the beats since the last one that was stored.
	impairment impairment
	why        string // why everything is to be applied again at the next stored beat
}

// New makes a heartbeat; Run starts it.
func New(api API, o Options) *Heart {
	h := &Heart{
		o: o, api: api, wake: make(chan struct{}, 1), unread: true,
		owner: Owner{Name: o.Node}, why: "first beat of this process",
	}
	h.board.status.State = Starting
	if o.StateDir != "" {
		m, err := recall(o.StateDir, o.Node)
		if err != nil {
			o.Log.Warn("cannot tell whether the lease was held by an earlier process of this machine; "+
				"it is taken over after three beats were missed", "error", err)
		}
		h.memory = m
	}
	h.self = Self{Holder: o.Holder, Predecessors: h.memory.predecessors()}
	return h
}

// Status says where the heartbeat stands.
func (h *Heart) Status() Status {
	s, _ := h.board.read()
	return s
}

// Beats gives figures of the beats.
func (h *Heart) Beats() Beats { return h.board.figures() }

// Holds reports whether this process may speak for the node: its last stored beat is not older than the lease duration
// and no other agent holds the Lease. What else the agent writes must wait while it does not.
func (h *Heart) Holds() bool {
	s, renewed := h.board.read()
	switch s.State {
	case IdentityConflict, WaitingForNode, Starting:
		return false
	}
	return !renewed.IsZero() && time.Since(renewed) <= h.o.LeaseDuration
}

// DoubtNode tells the heartbeat that the Node may be another than the one it knows.
func (h *Heart) DoubtNode() {
	h.nodeInDoubt.Store(true)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run beats until the context ends. The first beat is immediate; the second follows after a random part of the interval.
func (h *Heart) Run(ctx context.Context) {
	h.began = time.Now()
	nodeWait, first := firstNodeWait, true
	for ctx.Err() == nil {
		state := h.beat(ctx)
		wait := h.o.Interval + time.Duration(jitter*rand.Float64()*float64(h.o.Interval))
		switch {
		case state == WaitingForNode:
			wait = min(nodeWait, h.o.Interval)
			nodeWait = min(2*nodeWait, longestNodeWait)
		case state == Holding && first:
			first = false
			wait = time.Duration(rand.Float64() * float64(h.o.Interval))
			fallthrough
		default:
			if state == IdentityConflict {
				wait /= conflictLooks
			}
			nodeWait = firstNodeWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-h.wake:
		}
	}
}

// beat tries to store one renewal, and says where that leaves us.
func (h *Heart) beat(ctx context.Context) State {
	started := time.Now()
	if h.progress.stalled(h.o.Progress(), started, h.o.StallAfter) {
		return h.report(Status{State: Stalled, Detail: "checks have made no progress for " + h.o.StallAfter.String()}, time.Time{})
	}
	if h.nodeInDoubt.Swap(false) {
		h.owner.UID = ""
	}
	var err error
	pause := firstPause
	for try := 1; ; try++ {
		sent := time.Now()
		var state State
		state, err = h.try(ctx, sent)
		switch {
		case err == nil && state == Holding:
			return h.report(Status{State: Holding}, sent)
		case err == nil && state == IdentityConflict:
			return h.report(Status{State: state, Detail: "lease is held by " + h.sighting.Holder}, time.Time{})
		case err == nil:
			return h.report(Status{State: state, Detail: "node " + h.o.Node + " does not exist"}, time.Time{})
		case ctx.Err() != nil:
			return h.Status().State
		}
		kind := classify(err)
		if kind == unreachable && (try > 1 || errors.Is(err, context.DeadlineExceeded)) {
			h.api.DropConnections()
		}
		wait := max(pause, askedFor(err))
		if kind == refused || try == tries || time.Since(started)+wait >= h.o.Interval {
			return h.report(h.failed(ctx, err), time.Time{})
		}
		select {
		case <-ctx.Done():
			return h.Status().State
		case <-time.After(wait):
		}
		pause *= 2
	}
}

// report publishes a status, logs the change of state, and asks for everything to be applied again where that is due.
func (h *Heart) report(s Status, sent time.Time) State {
	if s.State != Failing {
		h.impairment.ended()
	}
	s.NodeUID = h.knownUID
	_, last := h.board.read()
	before := h.board.set(s, sent, time.Now())
	if s.State == Holding {
		if h.why == "" && (before.State == IdentityConflict || before.State == WaitingForNode) {
			h.why = "the lease is ours again"
		}
		if h.why == "" && sent.Sub(last) > h.o.LeaseDuration {
			h.why = "the lease was not renewed for longer than its duration"
		}
	}
	if s != before && h.o.Changed != nil {
		h.o.Changed(s)
	}
	switch {
	case s.State != before.State:
		h.logState(s)
	case s.Impaired && !before.Impaired:
		h.o.Log.Error("the lease cannot be renewed though the API server answers; this agent will count as silent. "+
			"Look at its rights to leases, and at the server's limits for them", "error", s.Detail)
	}
	if s.State == Holding && h.why != "" {
		h.o.Reapply(h.why)
		h.why = ""
	}
	return s.State
}

func (h *Heart) logState(s Status) {
	switch s.State {
	case Holding:
		h.o.Log.Info("lease held", "holder", h.o.Holder)
	case WaitingForNode:
		h.o.Log.Info("waiting for the node to be registered", "detail", s.Detail)
	case Failing:
		h.o.Log.Warn("lease cannot be renewed; tried again at every beat", "error", s.Detail)
	case Stalled:
		h.o.Log.Error("lease is not renewed, so that this agent counts as silent", "detail", s.Detail)
	case IdentityConflict:
		h.o.Log.Error("another living agent speaks for this node; this one stays silent until that one has "+
			"missed three beats. Stop one of the two, or give them different node names", "detail", s.Detail)
	}
}
