package report

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// API is what the reporter asks of the API server. Every call must bring its own deadline.
type API interface {
	Node(ctx context.Context, name string) (kubeclient.Node, error)
	ApplyNodeStatus(ctx context.Context, name string, body []byte, o kubeclient.ApplyOptions) error
	ApplyHostStatus(ctx context.Context, name string, body []byte) error
}

// Options of a reporter.
type Options struct {
	// Node is the name of the Node and of the Host.
	Node string
	// Agent is what the Host says of this process.
	Agent fettlev1alpha1.HostAgent
	// Holds reports whether this process may speak for the node.
	Holds func() bool
	// Awake reports whether checks are being looked at. Once it has said so after a sleep, the report that starts over has
	// been handed to Say.
	Awake func() bool // nil: always
	// DoubtNode is called when the Node seems to be another than before.
	DoubtNode func()
	Log       *slog.Logger
}

// Reporter publishes the latest report. Its exported methods may be called from any goroutine and do not block.
type Reporter struct {
	o     Options
	api   API
	inbox inbox
	board board

	// What follows belongs to Run alone.
	report  health.Report
	runtime *Runtime

	nodeKnown bool
	node      kubeclient.Node // as last read or written
	applied   []string        // condition types this process applied; nil: it has not applied yet

	host        *fettlev1alpha1.Host      // as last seen; nil: there is none
	hostThere   fettlev1alpha1.HostStatus // as last known to be stored
	hostApplied bool                      // by this process, to this Host
	doubted     hostKey                   // the foreign Host for whose sake the node was read again

	failures  int
	notBefore time.Time
}

// hostKey tells a Host from one that was created anew.
type hostKey struct{ host, node types.UID }

// New makes a reporter; Run starts it.
func New(api API, o Options) *Reporter {
	return &Reporter{o: o, api: api, inbox: newInbox()}
}

// Say hands over a report; the latest counts.
func (r *Reporter) Say(report health.Report) { r.inbox.say(report, time.Now()) }

// SetRuntime hands over whether the runtime is reachable.
func (r *Reporter) SetRuntime(runtime Runtime) { r.inbox.setRuntime(runtime, time.Now()) }

// Reapply has the node read, compared and where needed written again, at once.
func (r *Reporter) Reapply(why string) { r.inbox.reapply(why) }

// HostSeen hands over the Host as it was seen; nil says that there is none.
func (r *Reporter) HostSeen(host *fettlev1alpha1.Host) { r.inbox.hostSeen(host) }

// Run publishes until the context ends.
func (r *Reporter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := r.turn(ctx)
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-r.inbox.wake:
		case <-timer:
		}
	}
}

// turn does what there is to do now, and says how long to wait for the rest; 0 is until something happens.
func (r *Reporter) turn(ctx context.Context) time.Duration {
	now := time.Now()
	awake := r.o.Awake == nil || r.o.Awake() // asked before the inbox is emptied: the order matters
	letters, due := r.inbox.take(now)
	r.takeIn(letters)
	if !awake {
		return sleepWait
	}
	if wait := r.notBefore.Sub(now); wait > 0 {
		return wait
	}
	for ctx.Err() == nil {
		step := Next(r.facts())
		if step == Rest {
			r.board.rest(r.report.Decided, r.o.Holds())
			break
		}
		if err := r.do(ctx, step); err != nil {
			if ctx.Err() != nil {
				return 0
			}
			return r.failed(step, err)
		}
		r.succeeded()
	}
	return due
}

// takeIn folds what came in into what is known.
func (r *Reporter) takeIn(l letters) {
	if l.startOver {
		r.report = health.Report{}
	}
	if l.report != nil {
		r.report = *l.report
	}
	if l.runtime != nil {
		r.runtime = l.runtime
	}
	if l.hostSeen {
		r.takeInHost(l.host)
	}
	if l.why != "" {
		r.o.Log.Debug("everything is read, compared and where needed applied again", "why", l.why)
		// The Host needs no reading: if the controller wrote to it, its watch says so.
		r.nodeKnown, r.notBefore, r.failures = false, time.Time{}, 0
	}
}

// takeInHost notices what the Host tells beyond its status: that the controller took us for silent, and that our Node
// may be another.
func (r *Reporter) takeInHost(host *fettlev1alpha1.Host) {
	before := r.host
	r.host = host
	if host == nil {
		if before != nil {
			r.hostThere, r.hostApplied = fettlev1alpha1.HostStatus{}, false
			r.doubtNode() // the Host goes with its Node
		}
		return
	}
	if before == nil || before.UID != host.UID {
		r.hostThere, r.hostApplied = host.Status, false
	}
	if r.hostApplied && host.Status.Agent == nil {
		r.hostThere = host.Status // somebody emptied it
	}
	if saysUnknown(host) {
		r.hostThere = host.Status
		r.nodeKnown = false // the Node was written to as well
	}
	key := hostKey{host: host.UID, node: host.Spec.NodeUID}
	if r.node.UID != "" && host.Spec.NodeUID != r.node.UID && r.doubted != key {
		r.doubted = key
		r.doubtNode()
	}
}

func (r *Reporter) doubtNode() {
	r.nodeKnown = false
	r.o.DoubtNode()
}

func saysUnknown(host *fettlev1alpha1.Host) bool {
	for _, c := range host.Status.Conditions {
		if c.Type == fettlev1alpha1.HostReady && c.Status == "Unknown" {
			return true
		}
	}
	return false
}

func (r *Reporter) facts() Facts {
	f := Facts{
		Decided:      r.report.Decided,
		Holds:        r.o.Holds(),
		NodeKnown:    r.nodeKnown,
		NodeRight:    r.nodeRight(),
		HostOurs:     r.host != nil && r.host.Spec.NodeUID == r.node.UID,
		RuntimeKnown: r.runtime != nil,
	}
	if f.HostOurs && f.RuntimeKnown {
		f.HostRight = r.hostApplied && sameStatus(r.hostThere, r.hostStatus(time.Now()))
	}
	return f
}

// nodeRight : we applied at least once, so that types of an earlier process are gone, and what is there is what is
// wanted, no more and no less.
func (r *Reporter) nodeRight() bool {
	return r.applied != nil && slices.Equal(r.applied, appliedTypes(r.report.Conditions)) &&
		conditionsSay(r.node.Conditions, r.report.Conditions)
}

// appliedTypes is never nil.
func appliedTypes(wanted []health.Condition) []string {
	return append([]string{}, conditionTypes(wanted)...)
}

func (r *Reporter) hostStatus(now time.Time) fettlev1alpha1.HostStatus {
	return HostStatus(r.hostThere, r.o.Agent, *r.runtime, r.report, now)
}

func (r *Reporter) do(ctx context.Context, step Step) error {
	switch step {
	case ReadNode:
		return r.readNode(ctx)
	case ApplyNode:
		return r.applyNode(ctx, time.Now())
	case ApplyHost:
		return r.applyHost(ctx, time.Now())
	default:
		return nil
	}
}

func (r *Reporter) readNode(ctx context.Context) error {
	node, err := r.api.Node(ctx, r.o.Node)
	if err != nil {
		return err
	}
	if r.node.UID != "" && r.node.UID != node.UID {
		r.o.Log.Info("the node was created anew", "uid", node.UID)
		r.applied = nil
		r.o.DoubtNode()
	}
	r.node, r.nodeKnown = node, true
	return nil
}

func (r *Reporter) applyNode(ctx context.Context, now time.Time) error {
	conditions := NodeConditions(r.node.Conditions, r.report.Conditions, now)
	body, err := NodeStatus(r.o.Node, r.node.UID, conditions)
	if err != nil {
		return err
	}
	if err := r.api.ApplyNodeStatus(ctx, r.o.Node, body, kubeclient.ApplyOptions{}); err != nil {
		// What is there now is not known: the write may have been stored, or the node is another.
		r.nodeKnown = false
		if kubeclient.IsAnotherObject(err) {
			r.o.DoubtNode()
		}
		return err
	}
	r.node.Conditions = conditions
	r.applied = appliedTypes(r.report.Conditions)
	r.o.Log.Debug("conditions applied to the node", "conditions", len(conditions))
	return nil
}

func (r *Reporter) applyHost(ctx context.Context, now time.Time) error {
	status := r.hostStatus(now)
	body, err := hostBody(r.o.Node, status)
	if err != nil {
		return err
	}
	err = r.api.ApplyHostStatus(ctx, r.o.Node, body)
	if kubeclient.IsAnotherObject(err) {
		r.host = nil // its watch will show the one that is there now
		return nil
	}
	if err != nil {
		return err
	}
	r.hostThere, r.hostApplied = status, true
	return nil
}

// failed plans the next try. A node that does not exist is the heartbeat's to tell of.
func (r *Reporter) failed(step Step, err error) time.Duration {
	r.failures++
	asked := time.Duration(0)
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		asked = time.Duration(s) * time.Second
	}
	wait := backoff(r.failures, asked, rand.Float64())
	r.notBefore = time.Now().Add(wait)
	switch {
	case apierrors.IsNotFound(err):
		r.board.waits()
	case r.board.failed():
		r.o.Log.Warn("what was decided of this machine cannot be published; the latest is kept and tried again", "step", string(step), "error", err)
	}
	return wait
}

func (r *Reporter) succeeded() {
	r.failures, r.notBefore = 0, time.Time{}
	if r.board.succeeded() {
		r.o.Log.Info("publishing works again")
	}
}
