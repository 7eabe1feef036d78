package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/controller/metrics"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
	"github.com/fettle-dev/fettle/internal/nodewriter"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// BenchmarkNodeEvent measures what an event of a node costs the controller, from its cache to its decision, when there is
// nothing to write. It must not grow with the number of nodes, and only with the rules that select the node: one of all of
// them, or all. What whole clusters cost is in test/bench/controller.
func BenchmarkNodeEvent(b *testing.B) {
	for _, count := range []int{100, 1000, 5000} {
		for _, rules := range []int{1, 20, 200} {
			b.Run(fmt.Sprintf("nodes=%d/rules=%d/selecting=1", count, rules), func(b *testing.B) { benchmarkNodeEvent(b, count, rules, 1) })
			if rules > 1 {
				b.Run(fmt.Sprintf("nodes=%d/rules=%d/selecting=%d", count, rules, rules), func(b *testing.B) { benchmarkNodeEvent(b, count, rules, rules) })
			}
		}
	}
}

func benchmarkNodeEvent(b *testing.B, count, rules, selecting int) {
	still := newStillCache(count, rules, selecting)
	memory := &readiness.Memory{}
	n := &nodes{
		cache: still, writer: nodewriter.New(nil, nil), rules: readiness.NewRules(still, memory), memory: memory,
		agents: watch.New(watch.Options{}), metrics: metrics.New(), grace: time.Minute, log: logr.Discard(),
	}
	n.standings = readiness.NewStandings(n.rules, memory)
	n.events = events.NewQueue(nil, "bench", func() bool { return false }, logr.Discard())
	n.status = readiness.NewStatus(still, nil, n.standings, n.events, logr.Discard())
	if _, err := n.rules.Current(b.Context()); err != nil {
		b.Fatal(err)
	}
	look := func(name string) {
		before := still.nodes[name]
		if matters(before, before) {
			b.Fatal("a node differs from itself")
		}
		if _, err := n.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			b.Fatal(err)
		}
	}
	for name := range still.nodes { // every node has been looked at before
		look(name)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		look(nodeName(i % count))
	}
}

func nodeName(i int) string { return fmt.Sprintf("n%04d", i) }

// stillCache is a cache of objects that never change. A write would panic: there is no client.
type stillCache struct {
	cache.Cache
	nodes map[string]*corev1.Node
	hosts map[string]*fettlev1alpha1.Host
	rules []rule
}

// newStillCache makes nodes that fulfil all rules. Each node is selected by so many of them.
func newStillCache(count, rules, selecting int) *stillCache {
	s := &stillCache{nodes: map[string]*corev1.Node{}, hosts: map[string]*fettlev1alpha1.Host{}}
	for i := range rules {
		r := rule{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rule-%03d", i), UID: types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)), Generation: 1},
			Spec: readinessv1alpha1.NodeReadinessRuleSpec{
				NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": readinessv1alpha1.LabelValue(fmt.Sprintf("pool-%d", i/selecting))}},
				Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: network, RequiredStatus: corev1.ConditionTrue}},
				EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
				Taint:           readinessv1alpha1.TaintSpec{Key: fmt.Sprintf("r.example.com/%03d", i), Effect: corev1.TaintEffectNoSchedule},
			},
		}
		s.rules = append(s.rules, r)
	}
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: nodeName(i), UID: types.UID(fmt.Sprintf("node-%d", i)), ResourceVersion: "1",
			Labels: map[string]string{"pool": fmt.Sprintf("pool-%d", i%(rules/selecting)), "kubernetes.io/hostname": nodeName(i)},
		}}
		for j := range 20 {
			node.Labels[fmt.Sprintf("example.com/label-%d", j)] = "some-value"
		}
		for _, conditionType := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", fettlev1alpha1.ConditionHealthy, network} {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(conditionType), Status: corev1.ConditionTrue})
		}
		s.nodes[node.Name] = node
		s.hosts[node.Name] = &fettlev1alpha1.Host{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: "host-" + node.UID, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
			Spec:       fettlev1alpha1.HostSpec{NodeUID: node.UID},
		}
	}
	return s
}

// Get gives the shared object, as the controller's caches do.
func (s *stillCache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Node:
		if node := s.nodes[key.Name]; node != nil {
			*into = *node
			return nil
		}
	case *fettlev1alpha1.Host:
		if host := s.hosts[key.Name]; host != nil {
			*into = *host
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List gives what the rules need.
func (s *stillCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch into := into.(type) {
	case *readinessv1alpha1.NodeReadinessRuleList:
		into.Items = s.rules
	case *corev1.NodeList:
		for _, node := range s.nodes {
			into.Items = append(into.Items, *node)
		}
	}
	return nil
}
