package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/liveness"
)

const (
	// confirmTimeout bounds one live read of a lease.
	confirmTimeout = 5 * time.Second
	// confirmers bounds the live reads under way at once.
	confirmers = 8
)

// Informer is where objects of one type come from.
type Informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(cache.ResourceEventHandlerRegistration) error
}

// Options of a Watch. All are required.
type Options struct {
	// Leases and Hosts are informers of those types; Leases of the namespace fettle-node-lease alone.
	Leases, Hosts Informer
	// Live reads leases past the informer.
	Live client.Reader
	// Limits for agents whose lease asks for nothing longer.
	Limits liveness.Limits
	// Changed is called with a node's name when the verdict on its agent has changed. It must not block.
	Changed func(node string)
	Log     logr.Logger
}

// Watch knows which agents are alive.
type Watch struct {
	Options
	sightings chan sighting
	confirms  chan confirmation
	slots     chan struct{}

	// The following belong to the goroutine of Start.
	agents *agents
	warned map[time.Duration]bool

	mu sync.RWMutex
	// verdicts by node, for the Host with that UID. Guarded by mu.
	verdicts map[string]told
}

type told struct {
	host    string
	verdict liveness.Verdict
}

// New returns a Watch that knows nothing until it is started.
func New(o Options) *Watch {
	return &Watch{
		Options:   o,
		sightings: make(chan sighting),
		confirms:  make(chan confirmation),
		slots:     make(chan struct{}, confirmers),
		agents:    newAgents(),
		warned:    map[time.Duration]bool{},
		verdicts:  map[string]told{},
	}
}

// NeedLeaderElection makes only the leader judge: timers start when it begins to look.
func (w *Watch) NeedLeaderElection() bool { return true }

// Verdict returns what is known of the agent that reports for a Host. Starting means that nothing is known yet.
func (w *Watch) Verdict(node string, host types.UID) liveness.Verdict {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if t := w.verdicts[node]; t.host == string(host) && t.host != "" {
		return t.verdict
	}
	return liveness.Verdict{State: liveness.Starting}
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

// Start looks until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	stopLeases, err := w.follow(ctx, w.Leases, leaseSighting)
	if err != nil {
		return fmt.Errorf("follow leases: %w", err)
	}
	defer stopLeases()
	stopHosts, err := w.follow(ctx, w.Hosts, hostSighting)
	if err != nil {
		return fmt.Errorf("follow hosts: %w", err)
	}
	defer stopHosts()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if due, ok := w.agents.next(); ok {
			wait = max(time.Until(due), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case s := <-w.sightings:
			w.see(ctx, s)
		case c := <-w.confirms:
			w.confirmed(ctx, c)
		case <-timer.C:
			for now := time.Now(); ; {
				a := w.agents.takeDue(now)
				if a == nil {
					break
				}
				w.look(ctx, a, now)
			}
		}
	}
}

// see takes in what an informer showed.
func (w *Watch) see(ctx context.Context, s sighting) {
	a := w.agents.get(s.node)
	switch {
	case s.lease != nil && s.gone:
		a.progress, a.asks = liveness.Progress{}, 0
	case s.lease != nil:
		a.progress, a.asks = progressOf(s.lease), askedBy(s.lease)
	case s.gone:
		a.host, a.reported = "", false
	default:
		a.host, a.reported = string(s.host.UID), s.host.Status.Agent != nil
	}
	if a.host == "" {
		w.forget(a)
		return
	}
	w.look(ctx, a, time.Now())
}

// look judges an agent by what is known of it now.
func (w *Watch) look(ctx context.Context, a *agent, now time.Time) {
	var verdict liveness.Verdict
	a.history, verdict = liveness.Observe(a.history, a.observation(), now, w.limitsOf(a))
	w.agents.schedule(a, verdict.NextCheck)
	switch {
	case !verdict.State.Quiet() || verdict == a.said:
		w.say(a, verdict)
	case a.confirming: // its answer will be judged
	default:
		w.confirm(ctx, a)
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
func (w *Watch) say(a *agent, verdict liveness.Verdict) {
	before := a.said
	a.said = verdict
	w.mu.Lock()
	w.verdicts[a.node] = told{host: a.host, verdict: verdict}
	w.mu.Unlock()
	if before.State == verdict.State && before.Since.Equal(verdict.Since) {
		return
	}
	switch {
	case verdict.State.Quiet():
		w.Log.Info("agent is quiet", "node", a.node, "state", verdict.State, "for", time.Since(verdict.Since).Round(time.Second).String())
	case before.State.Quiet():
		w.Log.Info("agent is back", "node", a.node, "state", verdict.State)
	}
	w.Changed(a.node)
}

// forget drops an agent without a Host. What its lease last showed is kept: the lease may outlive the Host.
func (w *Watch) forget(a *agent) {
	w.mu.Lock()
	delete(w.verdicts, a.node)
	w.mu.Unlock()
	a.history, a.said = liveness.History{}, liveness.Verdict{}
	w.agents.schedule(a, time.Time{})
	if a.progress == (liveness.Progress{}) && !a.confirming {
		w.agents.drop(a)
	}
}

// confirmation is the answer of a live read.
type confirmation struct {
	node, host string
	lease      *coordinationv1.Lease // nil when there is none
	err        error
}

// confirm reads the agent's lease live and passes the answer to the goroutine of Start.
func (w *Watch) confirm(ctx context.Context, a *agent) {
	a.confirming = true
	c := confirmation{node: a.node, host: a.host}
	go func() {
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-ctx.Done():
			return
		}
		c.lease, c.err = w.readLive(ctx, c.node)
		select {
		case w.confirms <- c:
		case <-ctx.Done():
		}
	}()
}

func (w *Watch) readLive(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := w.Live.Get(ctx, client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: node}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// confirmed judges an agent by its lease as the API server has it. An informer that is behind, or stuck, therefore makes
// no living agent silent and hides no dead one: it only costs a live read for each agent and grace period.
func (w *Watch) confirmed(ctx context.Context, c confirmation) {
	a := w.agents.get(c.node)
	a.confirming = false
	now := time.Now()
	switch {
	case a.host != c.host: // another Host meanwhile, or none
		if a.host == "" {
			w.forget(a)
			return
		}
		w.look(ctx, a, now)
		return
	case c.err != nil:
		if !errors.Is(c.err, context.Canceled) {
			w.Log.Error(c.err, "cannot confirm that an agent is silent; its time starts anew", "node", a.node)
		}
		a.history = liveness.Excuse(a.history, now)
		w.look(ctx, a, now)
		return
	}
	live := a.observation()
	if c.lease != nil {
		a.progress, a.asks = progressOf(c.lease), askedBy(c.lease)
		live.Progress = a.progress
	}
	var verdict liveness.Verdict
	a.history, verdict = liveness.Observe(a.history, live, now, w.limitsOf(a))
	w.agents.schedule(a, verdict.NextCheck)
	w.say(a, verdict)
}
