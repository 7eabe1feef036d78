// Package fleet simulates many nodes and their agents in one process, against a real API server.
//
// A simulated agent writes what a real one writes and when it writes it: its conditions by one server-side apply on
// change, its Lease at an interval, its Host's status on change and when the controller has called it Unknown. It runs
// no checks: the test says what its conditions are. The nodes have no kubelet; with a controller manager they go
// NotReady.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// Options describe a fleet.
type Options struct {
	// Nodes is how many there are.
	Nodes int
	// Prefix begins the nodes' names; default "sim-". Two fleets in one cluster need two.
	Prefix string
	// Labels are set on every node.
	Labels map[string]string
	// LeaseInterval is how often an agent renews its Lease; default 10 s. The Lease's duration is four times that.
	LeaseInterval time.Duration
	// Conditions are what every agent says at first; default: the three types of a real agent, all True.
	Conditions []Condition
	// NoLeases leaves out the Leases, to tell their cost from that of the rest.
	NoLeases bool
	// Images is how many images each node lists, as a kubelet does; they are most of a real Node's bytes.
	Images int
}

// Condition is what an agent says of its node. Reason defaults to "AllChecksOK".
type Condition struct {
	Type            string
	Status          corev1.ConditionStatus
	Reason, Message string
}

// Fleet is a running simulation. Nodes are numbered from 0. Its methods may be called from any goroutine.
type Fleet struct {
	opts    Options
	clients *kubernetes.Clientset
	hosts   *rest.RESTClient // nil where the cluster has no Hosts
	agents  []*agent
	byName  map[string]*agent
	record  recorder
	resting atomic.Bool // no Lease is renewed

	stop    context.CancelFunc
	running sync.WaitGroup
}

// atOnce is how many requests are in flight while a fleet is set up or changed as a whole.
const atOnce = 32

// ForTest starts a fleet and stops its agents at the end of the test; its nodes go with the control plane.
func ForTest(t testing.TB, c *controlplane.ControlPlane, opts Options) *Fleet {
	t.Helper()
	f, err := Start(t.Context(), c.Config(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return f
}

// Start makes the nodes and starts their agents; when it returns, every agent has said its conditions and holds its
// Lease. config must not limit the rate of requests. The caller must Stop the fleet.
func Start(ctx context.Context, config *rest.Config, opts Options) (*Fleet, error) {
	if opts.Nodes <= 0 {
		return nil, fmt.Errorf("start a fleet: Options.Nodes is %d; it must be at least 1", opts.Nodes)
	}
	setDefaults(&opts)
	config = rest.CopyConfig(config)
	config.UserAgent = "fettle-fleet"
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("start a fleet: %w", err)
	}
	hosts, err := hostClient(config, clients)
	if err != nil {
		return nil, err
	}
	if err := makeLeaseNamespace(ctx, clients); err != nil {
		return nil, err
	}
	f := &Fleet{opts: opts, clients: clients, hosts: hosts, byName: map[string]*agent{}}
	for i := range opts.Nodes {
		a := newAgent(f, i)
		f.agents = append(f.agents, a)
		f.byName[a.name] = a
	}
	if err := f.Each(func(i int) error { return f.agents[i].join(ctx) }); err != nil {
		return nil, fmt.Errorf("start a fleet: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	for _, a := range f.agents {
		f.running.Go(func() { a.beat(running) })
	}
	if f.hosts != nil {
		f.running.Go(func() { f.watchHosts(running) })
	}
	return f, nil
}

func setDefaults(opts *Options) {
	if opts.Prefix == "" {
		opts.Prefix = "sim-"
	}
	if opts.LeaseInterval == 0 {
		opts.LeaseInterval = 10 * time.Second
	}
	if opts.Conditions == nil {
		for _, name := range []string{fettlev1alpha1.ConditionHealthy, fettlev1alpha1.ConditionNetworkReady, fettlev1alpha1.ConditionStorageReady} {
			opts.Conditions = append(opts.Conditions, Condition{Type: name, Status: corev1.ConditionTrue})
		}
	}
}

func makeLeaseNamespace(ctx context.Context, clients *kubernetes.Clientset) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fettlev1alpha1.LeaseNamespace}}
	_, err := clients.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// Stop ends all agents as a crash does. The nodes stay.
func (f *Fleet) Stop() {
	f.stop()
	f.running.Wait()
}

// Size is the number of nodes.
func (f *Fleet) Size() int { return len(f.agents) }

// Name is the name of node i.
func (f *Fleet) Name(i int) string { return f.agents[i].name }

// Silence makes agent i stop writing anything; Revive makes it go on, with a renewal at once.
func (f *Fleet) Silence(i int) { f.agents[i].setSilent(true) }

// RestLeases stops all renewals of Leases, and nothing else, or lets them go on.
func (f *Fleet) RestLeases(rest bool) { f.resting.Store(rest) }

// Revive ends Silence.
func (f *Fleet) Revive(i int) { f.agents[i].setSilent(false) }

// SetCondition changes one condition of agent i and applies all of them, and its Host's status where there is one. A
// silent agent says it once it is revived.
func (f *Fleet) SetCondition(ctx context.Context, i int, condition Condition) error {
	return f.agents[i].setCondition(ctx, condition)
}

// Each calls do for every node, for many at once, and returns all errors.
func (f *Fleet) Each(do func(i int) error) error {
	faults := make([]error, len(f.agents))
	var working sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range f.agents {
		slots <- struct{}{}
		working.Go(func() {
			faults[i] = do(i)
			<-slots
		})
	}
	working.Wait()
	return errors.Join(faults...)
}

// Figures are what the agents have done until now.
func (f *Fleet) Figures() Figures { return f.record.figures() }
