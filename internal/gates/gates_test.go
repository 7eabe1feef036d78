package gates

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// concerned collects whom gates tell of changes.
type concerned struct {
	mu    sync.Mutex
	nodes []string
	rules []types.UID
}

// take gives what was told since the last call.
func (c *concerned) take() (nodes []string, rules []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, rules = c.nodes, c.rules
	c.nodes, c.rules = nil, nil
	slices.Sort(nodes)
	return slices.Compact(nodes), rules
}

func ruleOf(uid types.UID, objects ...readinessv1alpha1.ObjectRequirement) readinessv1alpha1.NodeReadinessRule {
	return readinessv1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: readinessv1alpha1.NodeReadinessRuleSpec{Objects: objects}}
}

// TestWatchesComeAndGoWithRules: on the real API server, what is watched is what rules require at the time, and a change is
// told to those it concerns.
func TestWatchesComeAndGoWithRules(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	var told concerned
	g, err := New(t.Context(), Options{
		Config: c.Config(), HTTPClient: httpClient, Log: logr.Discard(),
		NodeChanged: func(node string) { told.mu.Lock(); defer told.mu.Unlock(); told.nodes = append(told.nodes, node) },
		RulesChanged: func(rules []types.UID) {
			told.mu.Lock()
			defer told.mu.Unlock()
			told.rules = append(told.rules, rules...)
		},
		Reworded: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	shared := readinessv1alpha1.ObjectRequirement{Name: "shared", Object: &readinessv1alpha1.ReadyObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "shared"}}
	own := readinessv1alpha1.ObjectRequirement{Name: "own", Object: &readinessv1alpha1.ReadyObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "of-$(NODE_NAME)"}}
	create := func(name string) {
		t.Helper()
		if _, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	on := func(node string, required readinessv1alpha1.ObjectRequirement) string {
		ready, message := g.Verdict(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, required)
		return string(ready) + " " + message
	}
	becomes := func(want string, node string, required readinessv1alpha1.ObjectRequirement) {
		t.Helper()
		await.That(t, "node "+node+", "+required.Name+": "+want, func() bool { return on(node, required) == want })
	}
	is := func(want string, node string, required readinessv1alpha1.ObjectRequirement) {
		t.Helper()
		if got := on(node, required); got != want {
			t.Errorf("node %s, %s: %q, want %q", node, required.Name, got, want)
		}
	}

	is(" it is not being watched", "a", shared)
	g.Require([]readinessv1alpha1.NodeReadinessRule{ruleOf("one", shared, own), ruleOf("two", shared)})
	becomes("Unknown ConfigMap default/shared does not exist", "a", shared)
	becomes("Unknown ConfigMap default/of-a does not exist", "a", own)
	await.That(t, "the rules are told of the first look", func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return len(told.rules) == 3 // two for what is shared, one for its own
	})
	told.take()

	create("of-a")
	await.That(t, "the object of node a is seen", func() bool { return on("a", own) == "True " })
	is("Unknown ConfigMap default/of-b does not exist", "b", own)
	if nodes, rules := told.take(); !slices.Equal(nodes, []string{"a"}) || rules != nil {
		t.Errorf("an object of node a concerns nodes %v, rules %v", nodes, rules)
	}
	create("shared")
	await.That(t, "the shared object is seen", func() bool { return on("b", shared) == "True " })
	nodes, rules := told.take()
	if slices.Sort(rules); nodes != nil || !slices.Equal(rules, []types.UID{"one", "two"}) {
		t.Errorf("an object of all concerns nodes %v, rules %v", nodes, rules)
	}

	// The rule that waits for objects of nodes goes, and with it their watch; the shared one is still there.
	g.Require([]readinessv1alpha1.NodeReadinessRule{ruleOf("two", shared)})
	is(" it is not being watched", "a", own)
	is("True ", "a", shared)
	create("of-b")
	if err := clients.CoreV1().ConfigMaps("default").Delete(t.Context(), "shared", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the shared object is gone", func() bool { return on("a", shared) != "True " })
	if nodes, rules := told.take(); nodes != nil || !slices.Equal(rules, []types.UID{"two"}) {
		t.Errorf("after the rule is gone nodes %v are concerned, and rules %v", nodes, rules)
	}

	// Suspended rules and those being deleted need nothing; what comes again is read anew.
	suspended, deleted := ruleOf("two", shared), ruleOf("three", own)
	suspended.Spec.Suspend, deleted.DeletionTimestamp = true, &metav1.Time{}
	g.Require([]readinessv1alpha1.NodeReadinessRule{suspended, deleted})
	is(" it is not being watched", "a", shared)
	is(" it is not being watched", "a", own)
	g.Require([]readinessv1alpha1.NodeReadinessRule{ruleOf("one", own)})
	becomes("True ", "a", own)
	becomes("True ", "b", own)
}

// BenchmarkVerdict is the cost of one verdict with 5,000 nodes, each with a pod.
func BenchmarkVerdict(b *testing.B) {
	const nodes = 5000
	required := readinessv1alpha1.ObjectRequirement{Name: "plugin", DaemonSet: &readinessv1alpha1.DaemonSetOnNode{Namespace: "a", Name: "b"}}
	d := newDaemonSetGate(*required.DaemonSet, Options{RulesChanged: func([]types.UID) {}, NodeChanged: func(string) {}, Reworded: func() {}}, nil)
	m := &made{byNode: map[string][]pod{}, revisions: &feed[revision]{feedState: feedState{read: true}}, pods: &feed[pod]{feedState: feedState{read: true}}, current: revision{1, "h"}}
	d.made, d.set.read, d.set.rows = m, true, map[string]daemonSet{"b": {generation: 1, observed: 1}}
	for i := range nodes {
		m.byNode[fmt.Sprintf("node-%d", i)] = []pod{{name: fmt.Sprintf("pod-%d", i), hash: "h", ready: true}}
	}
	g := &Gates{daemonSets: map[readinessv1alpha1.DaemonSetOnNode]*daemonSetGate{*required.DaemonSet: d}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-17"}}
	b.ReportAllocs()
	for b.Loop() {
		if ready, message := g.Verdict(node, required); ready != corev1.ConditionTrue {
			b.Fatal(message)
		}
	}
}
