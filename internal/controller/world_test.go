package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// controllerUser is who the controller is to the API server.
const controllerUser = "system:serviceaccount:fettle-system:controller"

// world is a control plane with the manifests of deploy/crds and deploy/controller applied, and an administrator.
type world struct {
	*controlplane.ControlPlane
	client.WithWatch
	// asController authenticates as the controller's ServiceAccount: the tests prove that its rights suffice.
	asController string // kubeconfig
}

func newWorld(t testing.TB, changes ...func(*controlplane.Options)) *world {
	t.Helper()
	options := controlplane.Options{ControllerManager: true, Audit: true}
	for _, change := range changes {
		change(&options)
	}
	c := controlplane.ForTest(t, options)
	if err := c.Apply(t.Context(), "../../deploy/crds", "../../deploy/controller/00-namespaces.yaml", "../../deploy/controller/10-rights.yaml",
		"../../deploy/controller/16-policies.yaml"); err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.NewWithWatch(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), "fettle-system", "controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{ControlPlane: c, WithWatch: admin, asController: kubeconfig}
}

// testOptions are those of a controller in a test, which shares its machine with others.
func testOptions(t testing.TB) Options {
	o := DefaultOptions()
	o.HealthProbeBindAddress = "0"
	o.Metrics = prometheus.NewRegistry() // several controllers may run in one test
	o.Log = testr.NewWithInterface(quietAfter{t}, testr.Options{})
	return o
}

// quietAfter drops what is logged after the test has ended, which would make it panic.
type quietAfter struct{ testing.TB }

func (q quietAfter) Log(args ...any) {
	defer func() { _ = recover() }()
	q.TB.Log(args...)
}

// run runs a controller in this process until the test ends or stop is called.
func (w *world) run(t testing.TB, o Options) (stop func()) {
	t.Helper()
	cfg := w.controllerConfig(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func (w *world) controllerConfig(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", w.asController)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// node makes a node with a kubelet's condition and the given pool and taints.
func (w *world) node(t testing.TB, name, pool string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool, "kubernetes.io/hostname": name}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
	if err := w.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.patch(t, n, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"test"}]}}`, "status")
	return n
}

// patch applies a strategic merge patch to a node, or to its status.
func (w *world) patch(t testing.TB, n *corev1.Node, patch string, subresource ...string) {
	t.Helper()
	p := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
	var err error
	if len(subresource) > 0 {
		err = w.Status().Patch(t.Context(), n.DeepCopy(), p)
	} else {
		err = w.Patch(t.Context(), n.DeepCopy(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// condition sets a condition of a node.
func (w *world) condition(t testing.TB, node, conditionType string, status corev1.ConditionStatus) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	w.patch(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Test","message":"test"}]}}`, conditionType, status), "status")
}

func (w *world) getNode(t testing.TB, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) getRule(t testing.TB, name string) *readinessv1alpha1.NodeReadinessRule {
	t.Helper()
	r := &readinessv1alpha1.NodeReadinessRule{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: name}, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// rule makes a continuous rule over one pool that needs example.com/Network=True, and deletes it after the test.
func (w *world) rule(t testing.TB, name, pool string, changes ...func(*readinessv1alpha1.NodeReadinessRule)) *readinessv1alpha1.NodeReadinessRule {
	t.Helper()
	r := &readinessv1alpha1.NodeReadinessRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": readinessv1alpha1.LabelValue(pool)}},
			Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: "example.com/Network", RequiredStatus: "True"}},
			EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
			Taint:           readinessv1alpha1.TaintSpec{Key: "r.example.com/" + name, Value: "pending", Effect: "NoSchedule"},
		},
	}
	for _, change := range changes {
		change(r)
	}
	if err := w.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) editRule(t testing.TB, name string, change func(*readinessv1alpha1.NodeReadinessRule)) {
	t.Helper()
	w.eventually(t, "rule "+name+" can be edited", func() (bool, string) {
		r := w.getRule(t, name)
		change(r)
		err := w.Update(t.Context(), r)
		return err == nil, fmt.Sprint(err) // a conflict with the controller writing its status
	})
}

// patience only ends tests that would wait for ever: machines may be very busy.
const patience = 4 * time.Minute

// eventually looks until it holds, and fails with what was seen last when it does not.
func (w *world) eventually(t testing.TB, what string, look func() (holds bool, seen string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		holds, seen := look()
		if holds {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("did not come about within %s: %s; seen last: %s", patience, what, seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tainted waits until the node has exactly these taints, in any order.
func (w *world) tainted(t testing.TB, node string, want ...string) {
	t.Helper()
	slices.Sort(want)
	w.eventually(t, fmt.Sprintf("node %s has taints %v", node, want), func() (bool, string) {
		got := taintsOf(w.getNode(t, node))
		return got == strings.Join(want, " "), got
	})
}

// taintsOf leaves out what kube-controller-manager makes of nodes that have no kubelet.
func taintsOf(n *corev1.Node) string {
	var out []string
	for _, taint := range n.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			continue
		}
		out = append(out, taint.Key+"="+taint.Value+":"+string(taint.Effect))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// versions follows a node and gives every version of it, beginning with the present one, until the test ends.
func (w *world) versions(t testing.TB, name string) <-chan *corev1.Node {
	t.Helper()
	watch, err := w.Watch(t.Context(), &corev1.NodeList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	out := make(chan *corev1.Node, 1000)
	go func() {
		defer close(out)
		for e := range watch.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				out <- n
			}
		}
	}()
	return out
}

// until reads versions of a node up to the first that is as wanted, and returns all of them.
func until(t testing.TB, versions <-chan *corev1.Node, what string, wanted func(*corev1.Node) bool) []*corev1.Node {
	t.Helper()
	var seen []*corev1.Node
	deadline := time.After(patience)
	for {
		select {
		case n, ok := <-versions:
			if !ok {
				t.Fatalf("the watch ended before %s", what)
			}
			seen = append(seen, n)
			if wanted(n) {
				return seen
			}
		case <-deadline:
			t.Fatalf("did not come about within %s: %s; seen: %s", patience, what, describe(seen))
		}
	}
}

func describe(nodes []*corev1.Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, fmt.Sprintf("taints [%s] annotations %v", taintsOf(n), n.Annotations))
	}
	encoded, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// quiet waits until the controller has written nothing for a while.
func (w *world) quiet(t testing.TB) controlplane.Mark {
	t.Helper()
	mark, err := w.Mark()
	if err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the controller is quiet", func() (bool, string) {
		time.Sleep(2500 * time.Millisecond) // longer than the least time between two writes of a rule's status
		since, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		if mark, err = w.Mark(); err != nil {
			t.Fatal(err)
		}
		writes := writesOf(since)
		return len(writes) == 0, writes.String()
	})
	return mark
}

// writesOf gives what the controller wrote, but for its leader lease and its canary.
func writesOf(requests controlplane.Requests) controlplane.Requests {
	return requests.By(controllerUser).Writes().Where(func(r controlplane.Request) bool {
		return r.Resource != "leases" || r.Name != LeaderLease && r.Name != fettlev1alpha1.CanaryLease && r.Name != "" // the canary is created
	})
}

func describeCounts(c readinessv1alpha1.NodeCounts) string {
	return fmt.Sprintf("selected %d, ready %d, held %d, failed %d", c.Selected, c.Ready, c.Held, c.Failed)
}
