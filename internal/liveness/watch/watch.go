package watch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/hosts"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// longestPause is the time between two passes over all agents; a pass over 5,000 takes less than a millisecond. With a short
// grace period they are more frequent.
const longestPause = time.Second

// Informer is where objects of one type come from.
type Informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(cache.ResourceEventHandlerRegistration) error
}

// Options of a Watch. All but Planned are required.
type Options struct {
	// Leases and Hosts are informers of those types; Leases of the namespace fettle-node-lease alone.
	Leases, Hosts Informer
	// Live reads leases past the informer, Client writes the controller's own.
	Live   client.Reader
	Client client.Client
	// Limits for agents whose lease asks for nothing longer.
	Limits liveness.Limits
	// Policy is in force until SetPolicy is called.
	Policy fleet.Policy
	// Planned gives until when a node is away on purpose, as for a reboot that the controller has let it make; the zero time
	// for not. nil plans nothing. It must not block.
	Planned func(node string) time.Time
	// Changed is called with a node's name when the verdict on its agent has changed. It must not block.
	Changed func(node string)
	Log     logr.Logger
}

// Watch knows which agents are alive.
type Watch struct {
	Options
	sightings chan sighting
	confirms  chan confirmation
	beats     chan beat
	slots     chan struct{}

	// The following belong to the goroutine of Start.
	agents  map[string]*agent // by node
	canary  canary
	state   fleet.State
	resumed map[string]late // by the UID of the Host; what another leader left
	warned  map[time.Duration]bool

	policy atomic.Pointer[fleet.Policy]
	tally  tally

	mu sync.RWMutex
	// verdicts by node, for the Host with that UID. Guarded by mu.
	verdicts map[string]told
	// report on the fleet. Guarded by mu.
	report fleet.Report
	// blind is when a pass last found that nothing could be seen. Guarded by mu.
	blind time.Time
}

type told struct {
	host    string
	verdict liveness.Verdict
	process Process
}

// Process is what is known of the process that holds an agent's lease.
type Process struct {
	// Holder is the lease's; empty when there is none, or nothing is known yet.
	Holder string
	// Heard is true once this controller has seen it renew the lease.
	Heard bool
	// Late is when it has missed a beat since the controller first looked, if it was not heard until then.
	Late time.Time
}

// New returns a Watch that knows nothing until it is started.
func New(o Options) *Watch {
	w := &Watch{
		Options:   o,
		sightings: make(chan sighting),
		confirms:  make(chan confirmation),
		beats:     make(chan beat),
		slots:     make(chan struct{}, confirmers),
		agents:    map[string]*agent{},
		warned:    map[time.Duration]bool{},
		verdicts:  map[string]told{},
	}
	w.SetPolicy(o.Policy)
	return w
}

// NeedLeaderElection makes only the leader judge: timers start when it begins to look.
func (w *Watch) NeedLeaderElection() bool { return true }

// SetPolicy replaces what people decided about silence, from the next pass on.
func (w *Watch) SetPolicy(p fleet.Policy) { w.policy.Store(&p) }

// Verdict returns what is known of the agent that reports for a Host. Starting means that nothing is known yet.
func (w *Watch) Verdict(node string, host types.UID) liveness.Verdict {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if t := w.verdicts[node]; t.host == string(host) && t.host != "" {
		return t.verdict
	}
	return liveness.Verdict{State: liveness.Starting}
}

// Process returns what is known of the process that holds the lease of a Host's agent; the zero value for nothing.
func (w *Watch) Process(node string, host types.UID) Process {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if t := w.verdicts[node]; t.host == string(host) {
		return t.process
	}
	return Process{}
}

// Counts counts agents by state.
func (w *Watch) Counts() map[liveness.State]int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	counts := map[liveness.State]int{}
	for _, t := range w.verdicts {
		counts[t.verdict.State]++
	}
	return counts
}

// Blind returns when it was last found that what changes in the cluster does not reach the controller, which is now while that
// lasts; zero for never.
func (w *Watch) Blind() time.Time {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.blind
}

// Fleet returns the verdict on the fleet, as of the last pass. Before the first it is Blind.
func (w *Watch) Fleet() fleet.Report {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.report.Verdict == "" {
		return fleet.Report{Verdict: fleet.Blind, Computed: fleet.Blind, Reason: fleet.ReasonWatchStalled, Message: "agents have not been looked at yet"}
	}
	return w.report
}

// Start looks until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	began := time.Now()
	w.canary = newCanary(began, w.Limits.Grace)
	w.takeOver(ctx)
	leases, stopLeases, err := w.follow(ctx, w.Leases, leaseSighting)
	if err != nil {
		return fmt.Errorf("follow leases: %w", err)
	}
	defer stopLeases()
	var stopHosts func()
	defer func() {
		if stopHosts != nil {
			stopHosts()
		}
	}()

	ticker := time.NewTicker(min(longestPause, w.Limits.Grace/10))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-w.sightings:
			w.see(s, time.Now())
		case c := <-w.confirms:
			w.confirmed(c, time.Now())
		case b := <-w.beats:
			w.canary.beaten(b)
			w.tally.noteBeat(b)
		case <-ticker.C:
			// An agent's timer starts with its Host, so its lease has to be known before.
			if stopHosts == nil && leases.HasSynced() {
				if _, stopHosts, err = w.follow(ctx, w.Hosts, hostSighting); err != nil {
					return fmt.Errorf("follow hosts: %w", err)
				}
			}
			now := time.Now()
			w.pass(ctx, now)
			w.beat(ctx, now)
		}
	}
}

// see takes in what an informer showed.
func (w *Watch) see(s sighting, now time.Time) {
	if s.lease != nil && s.node == fettlev1alpha1.CanaryLease {
		if !s.gone {
			w.canary.sighted(s.lease)
		}
		return
	}
	a := w.agent(s.node)
	switch {
	case s.lease != nil && s.gone:
		a.progress, a.duration, a.asks = liveness.Progress{}, 0, 0
	case s.lease != nil:
		w.take(a, s)
	case s.gone:
		a.host, a.reported = "", false
	default:
		w.meet(a, s.host, now)
	}
	if a.host == "" {
		w.forget(a)
		return
	}
	w.look(a, now)
}

func (w *Watch) agent(node string) *agent {
	a := w.agents[node]
	if a == nil {
		a = &agent{node: node}
		w.agents[node] = a
	}
	return a
}

// take takes in a lease.
func (w *Watch) take(a *agent, s sighting) {
	progress := progressOf(s.lease)
	if progress != a.progress {
		a.known = false // it speaks, or spoke since the cluster was told
	}
	a.progress = progress
	a.duration, a.asks = durationOf(s.lease), askedBy(s.lease)
}

// meet takes in a Host. With one that was not known before the agent's timer begins, or goes on where another leader left it.
func (w *Watch) meet(a *agent, host *fettlev1alpha1.Host, now time.Time) {
	uid := string(host.UID)
	if uid != a.host {
		a.history, a.said, a.acted = liveness.History{}, liveness.Verdict{}, false
		a.met = now
		a.known = hosts.IsUnknown(host)
		if before, ok := w.resumed[uid]; ok && before.progress() == a.progress {
			a.history = liveness.Resume(uid, a.progress, before.Stale.Duration, now)
		}
		delete(w.resumed, uid)
	}
	a.host, a.reported = uid, host.Status.Agent != nil
}

// look judges an agent by what is known of it now.
func (w *Watch) look(a *agent, now time.Time) {
	a.history, a.verdict = liveness.Observe(a.history, a.observation(), now, w.limitsOf(a))
	switch {
	case !a.verdict.State.Quiet():
		a.acted = false
		w.say(a, a.verdict, now)
	case a.acted:
		w.say(a, a.verdict, now)
	default: // until it is confirmed and the fleet allows
		w.say(a, liveness.Verdict{State: liveness.Overdue, Since: a.verdict.Since}, now)
	}
}

// limitsOf gives an agent at least the time that its lease asks for.
func (w *Watch) limitsOf(a *agent) liveness.Limits {
	limits := w.Limits
	if asked := a.asks; asked > limits.Grace {
		if !w.warned[asked] {
			w.warned[asked] = true
			w.Log.Info("a lease asks for more than the grace period; such agents get what they ask for", "grace", limits.Grace.String(), "asked", asked.String(), "node", a.node)
		}
		limits.Grace = asked
	}
	return limits
}

// say makes a verdict known.
func (w *Watch) say(a *agent, verdict liveness.Verdict, now time.Time) {
	before, process := a.said, a.process(w.Limits)
	same := before.State == verdict.State && before.Since.Equal(verdict.Since)
	if same && process == a.saidOf {
		return
	}
	a.said, a.saidOf = verdict, process
	w.mu.Lock()
	w.verdicts[a.node] = told{host: a.host, verdict: verdict, process: process}
	w.mu.Unlock()
	if same {
		return
	}
	switch {
	case verdict.State == liveness.Overdue:
		if !before.State.Quiet() {
			return // nothing follows from it
		}
	case verdict.State.Quiet():
		if verdict.State == liveness.Silent && !a.known {
			w.tally.silences.Add(1)
		}
		w.Log.Info("agent is quiet", "node", a.node, "state", verdict.State, "for", now.Sub(verdict.Since).Round(time.Second).String())
	case before.State.Quiet():
		if before.State == liveness.Silent {
			w.tally.recoveries.Add(1)
		}
		w.Log.Info("agent is back", "node", a.node, "state", verdict.State)
	}
	w.Changed(a.node)
}

// forget drops an agent without a Host. What its lease last showed is kept: the lease may outlive the Host.
func (w *Watch) forget(a *agent) {
	w.mu.Lock()
	delete(w.verdicts, a.node)
	w.mu.Unlock()
	a.history, a.verdict, a.said = liveness.History{}, liveness.Verdict{}, liveness.Verdict{}
	a.known, a.acted = false, false
	if a.progress == (liveness.Progress{}) && !a.confirming {
		delete(w.agents, a.node)
	}
}
