package report

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// API is what the reporter asks of the API server. Every call must bring its own deadline.
type API interface {
	Node(ctx context.Context, name string) (kubeclient.Node, error)
	ApplyNodeStatus(ctx context.Context, name string, body []byte, o kubeclient.ApplyOptions) error
	PatchNodeStatus(ctx context.Context, name string, patch []byte) error
	ApplyHostStatus(ctx context.Context, name string, body []byte) (resourceVersion string, err error)
	DropConnections()
}

// Options of a reporter.
type Options struct {
	// Node is the name of the Node and of the Host.
	Node string
	// Agent is what the Host says of this process.
	Agent fettlev1alpha1.HostAgent
	// Lease says whether this process may speak for the node.
	Lease func() Lease
	// Awake reports whether checks are being looked at. Once it has said so after a sleep, the report that starts over has
	// been handed to Say.
	Awake func() bool // nil: always
	// DoubtNode is called when the Node seems to be another than before.
	DoubtNode func()
	// Rested is called whenever everything is said. It must not block.
	Rested func() // nil: nobody asks
	Log    *slog.Logger
}

// Reporter publishes the latest report. Its exported methods may be called from any goroutine and do not block.
type Reporter struct {
	o     Options
	api   API
	inbox inbox
	board board

	// What follows belongs to Run alone.
	report         health.Report
	undecidedSince time.Time // zero: all is decided, or nothing was reported
	outlivedSince  time.Time // since when the report is one from before the Lease came to be ours; zero: it is not
	runtime        *Runtime

	nodeKnown bool
	nodeFresh bool            // read since we last wrote to it
	node      kubeclient.Node // as last read or written
	applied   []string        // condition types that are ours on the node
	messages  messages
	spared    bool              // leftovers may not be removed, and it was said
	told      *health.Condition // what was said of the agent while its Lease is impaired

	host         *fettlev1alpha1.Host      // as last seen; nil: there is none
	hostThere    fettlev1alpha1.HostStatus // as last known to be stored
	hostApplied  bool                      // by this process, to this Host
	hostMessages time.Time                 // when messages of the Host were last written
	hostVersion  string                    // resourceVersion of the Host as we last wrote it
	doubted      hostKey                   // the foreign Host for whose sake the node was read again

	failures  int
	outdated  int // writes in a row that were refused because the node had changed
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
	r.takeIn(letters, now)
	if !awake {
		return sleepWait
	}
	if wait := r.notBefore.Sub(now); wait > 0 {
		return wait
	}
	for ctx.Err() == nil {
		f, wait := r.facts(time.Now())
		step := Next(f)
		if step == Rest {
			if r.board.rest(f, now) && r.o.Rested != nil {
				r.o.Rested()
			}
			return soonest(due, wait)
		}
		if err := r.do(ctx, step); err != nil {
			if ctx.Err() != nil {
				return 0
			}
			return r.failed(step, err)
		}
		r.succeeded()
	}
	return 0
}

// takeIn folds what came in into what is known.
func (r *Reporter) takeIn(l letters, now time.Time) {
	if l.report != nil {
		again := retracts(r.report, *l.report)
		r.report = *l.report
		switch {
		case r.report.Decided:
			r.undecidedSince = time.Time{}
		case r.undecidedSince.IsZero(), again:
			r.undecidedSince = now
		}
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
		r.nodeKnown, r.notBefore, r.failures, r.spared = false, time.Time{}, 0, false
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
	if r.hostApplied && older(host.ResourceVersion, r.hostVersion) {
		return // a watch that was behind shows what we have written over since
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

// older reports whether one resourceVersion of an object came before another; not if either is unknown.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
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

// overdue reports whether what is not decided was waited for long enough; wait is how long it still is, 0 when nothing is
// waited for.
func (r *Reporter) overdue(now time.Time) (overdue bool, wait time.Duration) {
	if r.undecidedSince.IsZero() {
		return false, 0
	}
	wait = max(decisionWait-now.Sub(r.undecidedSince), 0)
	return wait == 0, wait
}

// outlived reports whether the report is from before the Lease came to be ours: a report of a conflict is never for the
// node, since an agent in conflict is silent. The next one is waited for, though not longer than for a decision, since
// it says the same where the check is held at what it was; wait is how long it still is.
func (r *Reporter) outlived(now time.Time) (outlived bool, wait time.Duration) {
	if r.o.Lease() != Held || !tellsOfConflict(r.report) {
		r.outlivedSince = time.Time{}
		return false, 0
	}
	if r.outlivedSince.IsZero() {
		r.outlivedSince = now
	}
	wait = max(decisionWait-now.Sub(r.outlivedSince), 0)
	return wait > 0, wait
}

func tellsOfConflict(report health.Report) bool {
	return slices.ContainsFunc(report.Conditions, func(c health.Condition) bool { return c.Reason == ReasonIdentityConflict })
}

func (r *Reporter) wish(now time.Time) wish {
	overdue, _ := r.overdue(now)
	return wish{decided: r.report.Conditions, pending: r.report.Pending, overdue: overdue}
}

// facts are what the next step is decided on; wait is how long they stay as they are though nothing happens, 0 for ever.
func (r *Reporter) facts(now time.Time) (f Facts, wait time.Duration) {
	overdue, decisionWait := r.overdue(now)
	outlived, outlivedWait := r.outlived(now)
	f = Facts{
		Lease:        r.o.Lease(),
		Decided:      !outlived && (r.report.Decided || overdue || len(r.report.Conditions) > 0),
		NodeKnown:    r.nodeKnown,
		NodeFresh:    r.nodeKnown && r.nodeFresh,
		HostDecided:  r.report.Decided || overdue,
		HostOurs:     r.host != nil && r.host.Spec.NodeUID == r.node.UID,
		RuntimeKnown: r.runtime != nil,
	}
	var nodeWait, hostWait time.Duration
	nodeWait = r.nodeFacts(&f, now)
	if f.HostOurs && f.RuntimeKnown {
		f.HostRight, hostWait = r.hostRight(now)
	}
	return f, soonest(decisionWait, outlivedWait, nodeWait, hostWait)
}

func (r *Reporter) do(ctx context.Context, step Step) error {
	now := time.Now()
	switch step {
	case ReadNode:
		return r.readNode(ctx)
	case RemoveLeftovers:
		return r.removeLeftovers(ctx, now)
	case ApplyNode:
		return r.applyNode(ctx, now)
	case ApplyAgent:
		return r.applyAgent(ctx, now)
	case ApplyHost:
		return r.applyHost(ctx, now)
	default:
		return nil
	}
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
	if r.failures > 1 && errors.Is(err, context.DeadlineExceeded) {
		r.api.DropConnections() // the other end may be gone without a word
	}
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
