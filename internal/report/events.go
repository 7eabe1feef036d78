package report

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

const (
	// maxWaitingEvents bounds the events that wait; the oldest go first.
	maxWaitingEvents = 64
	// conflictEvery is how often at most a conflict of identities is told.
	conflictEvery = 10 * time.Minute
	// eventController is whose events these are, as `kubectl describe node` shows it.
	eventController = "fettle-nodeagent"
	// maxNote is what the API server accepts, in bytes.
	maxNote = 1024
)

// ReasonIdentityConflict is the reason of the event of an agent that is silent because another one speaks for its node.
const ReasonIdentityConflict = "IdentityConflict"

// Types of events.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// EventOptions of the events of one agent.
type EventOptions struct {
	// Node is the name of the Node, and of the Host, that they are about, Instance the identity of this process.
	Node, Instance string
	// NodeUID is that of the Node, HostUID that of its Host; empty: not known, and nothing is told of it.
	NodeUID, HostUID func() types.UID
	// Settled reports whether all that is more urgent is written, and this process may speak for the node.
	Settled func() bool
	Log     *slog.Logger
}

// Events tells of changes of checks in Events about the Node, and of the agent's own life in Events about the Host. What
// waits is summarised: of each check only that it is another than when it was last told of. Its methods may be called from any goroutine and do not block.
type Events struct {
	o    EventOptions
	wake chan struct{}

	mu       sync.Mutex
	budget   eventBudget
	told     map[string]health.CheckState // where checks stood when they were last told of
	waiting  []occasion
	counts   EventCounts
	conflict time.Time // when a conflict was last told

	// What follows belongs to Run alone.
	recent   recentEvents
	failures int
	said     bool // that events are refused
}

// EventCounts are events by what became of them.
type EventCounts struct {
	Sent uint64
	// Dropped because too many waited, or the API server refused them.
	Dropped uint64
}

// occasion is something to tell.
type occasion struct {
	// Of what waits, the newest on a subject counts. A conflict of identities does not wait until this process may speak.
	subject
	state health.CheckState
	event kubeclient.Event
	// paid : the budget has allowed it.
	paid bool
}

// NewEvents makes the events of one agent; Run sends them.
func NewEvents(o EventOptions) *Events {
	return &Events{
		o: o, wake: make(chan struct{}, 1), told: map[string]health.CheckState{},
		budget: newEventBudget(),
	}
}

// Counts says what became of events.
func (e *Events) Counts() EventCounts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// Transition takes in that a check came from one settled verdict to another. A check that is looked at for the first
// time and is well, and one that is pending, are not worth an event, nor is a dry run.
func (e *Events) Transition(before, after health.CheckState, condition string) {
	if after.DryRun || after.Reason == health.ReasonPending {
		return
	}
	about := subject{topic: after.Name}
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.told[after.Name]
	if !known {
		last = before
		e.told[after.Name] = last
	}
	e.forget(about)
	if alike(last, after) || after.Reason == ReasonIdentityConflict {
		if well(last) || last.Reason == health.ReasonPending {
			e.told[after.Name] = after
		}
		return
	}
	e.add(occasion{subject: about, state: after, event: eventOf(last, after, condition)})
}

// Conflict takes in that another living agent, or what is said of it, speaks for the node.
func (e *Events) Conflict(detail string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.conflict.IsZero() && now.Sub(e.conflict) < conflictEvery {
		return
	}
	e.conflict = now
	e.add(occasion{event: kubeclient.Event{
		Type: eventWarning, Reason: ReasonIdentityConflict, Action: "StaySilent",
		Note: "another node agent speaks for this node, so that this one stays silent: " + detail,
	}})
}

// forget drops what waits on a subject. It must be called with mu held.
func (e *Events) forget(s subject) {
	e.waiting = slices.DeleteFunc(e.waiting, func(o occasion) bool { return o.subject == s })
}

// add must be called with mu held.
func (e *Events) add(o occasion) {
	if len(e.waiting) == maxWaitingEvents {
		e.waiting = e.waiting[1:]
		e.counts.Dropped++
	}
	e.waiting = append(e.waiting, o)
	e.Wake()
}

// Wake has another look at what waits; it is to be called when Settled comes to be true.
func (e *Events) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func well(s health.CheckState) bool {
	return s.Verdict == health.OK || s.Verdict == health.NotApplicable
}

// alike reports whether going from one state to the other is not worth an event.
func alike(a, b health.CheckState) bool {
	return a.Verdict == b.Verdict && a.Reason == b.Reason || well(b) && (well(a) || a.Reason == health.ReasonPending || a.Verdict == "")
}

func eventOf(before, after health.CheckState, condition string) kubeclient.Event {
	e := kubeclient.Event{
		Type: eventWarning, Reason: after.Reason, Action: "ReportFault",
		Note: fmt.Sprintf("%s: %s (%s)", after.Name, health.Normalise(after.Message), condition),
	}
	if well(after) {
		e.Type, e.Action = eventNormal, "ReportRecovery"
		e.Note = fmt.Sprintf("%s is well again after %s (%s)", after.Name, before.Reason, condition)
	}
	e.Note = shorten(e.Note, maxNote)
	return e
}
