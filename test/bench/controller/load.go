package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

const (
	poolLabel  = "bench.example.com/pool"
	controlled = "controlled" // nodes that the rules select
	bare       = "bare"       // nodes that the bare loop taints

	taintPrefix = "bench.example.com/rule-"
	// workers is how many writes the bare loop has in flight: as many as the controller by default.
	workers = 16
	// inFlight bounds the changes of a steady load that are under way at once.
	inFlight = 64
)

func taintKey(rule int) string      { return fmt.Sprintf("%s%02d", taintPrefix, rule) }
func conditionType(rule int) string { return fmt.Sprintf("bench.example.com/Condition-%02d", rule) }

// node is a simulated node and what its conditions are.
type node struct {
	name string
	mu   sync.Mutex // held over writes of it
	fine []bool     // by rule; guarded by mu
}

// makeRules makes rules over all controlled nodes, one for each condition type.
func (b *bench) makeRules(ctx context.Context) error {
	for i := range b.rules {
		rule := &readinessv1alpha1.NodeReadinessRule{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rule-%02d", i)},
			Spec: readinessv1alpha1.NodeReadinessRuleSpec{
				NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{poolLabel: controlled}},
				Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: conditionType(i), RequiredStatus: corev1.ConditionTrue}},
				EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
				Taint:           readinessv1alpha1.TaintSpec{Key: taintKey(i), Value: "pending", Effect: corev1.TaintEffectNoSchedule},
			},
		}
		if err := b.cluster.rules.Create(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}

// loop says who taints the nodes: the controller, or the bare loop that writes each taint right after its condition.
type loop struct {
	*bench
	bare  bool
	nodes []*node
	// changes counts the conditions that were written.
	changes atomic.Int64
}

// turn changes one condition of a node, and its taint if this is the bare loop.
func (l *loop) turn(ctx context.Context, n *node, rule int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	fine := !n.fine[rule]
	if err := l.writeConditions(ctx, n.name, map[int]bool{rule: fine}); err != nil {
		return err
	}
	n.fine[rule] = fine
	l.tracker.want(place{n.name, rule}, !fine)
	l.changes.Add(1)
	if l.bare {
		return l.writeTaints(ctx, n)
	}
	return nil
}

// turnTaint changes a taint of a node alone, as an edit of a rule does.
func (l *loop) turnTaint(ctx context.Context, n *node, rule int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fine[rule] = !n.fine[rule]
	l.tracker.want(place{n.name, rule}, !n.fine[rule])
	return l.writeTaints(ctx, n)
}

// require edits a rule to hold nodes whose condition has another status.
func (b *bench) require(ctx context.Context, rule int, status corev1.ConditionStatus) error {
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/conditions/0/requiredStatus","value":%q}]`, status)
	edited := &readinessv1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rule-%02d", rule)}}
	if err := b.cluster.rules.Patch(ctx, edited, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		return err
	}
	for _, n := range b.ours.nodes {
		b.tracker.want(place{n.name, rule}, n.fine[rule] != (status == corev1.ConditionTrue))
	}
	return nil
}

// report says at first what every condition of a node is: fine.
func (l *loop) report(ctx context.Context, n *node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[int]bool{}
	for i := range n.fine {
		all[i] = true
	}
	if err := l.writeConditions(ctx, n.name, all); err != nil {
		return err
	}
	for i := range n.fine {
		n.fine[i] = true
		l.tracker.want(place{n.name, i}, false)
	}
	return nil
}

func (l *loop) writeConditions(ctx context.Context, name string, fine map[int]bool) error {
	type condition struct {
		Type               string                 `json:"type"`
		Status             corev1.ConditionStatus `json:"status"`
		Reason             string                 `json:"reason"`
		Message            string                 `json:"message"`
		LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
	}
	var conditions []condition
	for rule, yes := range fine {
		c := condition{Type: conditionType(rule), Status: corev1.ConditionFalse, Reason: "Bench", Message: "as the bench wants it", LastTransitionTime: metav1.Now()}
		if yes {
			c.Status = corev1.ConditionTrue
		}
		conditions = append(conditions, c)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = l.cluster.clients.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "bench"}, "status")
	return err
}

// writeTaints is the write of the bare loop, and all that it does.
func (l *loop) writeTaints(ctx context.Context, n *node) error {
	taints := []corev1.Taint{}
	for rule, fine := range n.fine {
		if !fine {
			taints = append(taints, corev1.Taint{Key: taintKey(rule), Value: "pending", Effect: corev1.TaintEffectNoSchedule})
		}
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/taints", "value": taints}})
	if err != nil {
		return err
	}
	_, err = l.cluster.clients.CoreV1().Nodes().Patch(ctx, n.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "bench"})
	return err
}

// each calls do for all nodes given, with as many workers as the controller has.
func each(nodes []*node, do func(*node) error) error {
	faults := make([]error, workers)
	var next atomic.Int64
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(nodes)); i = next.Add(1) - 1 {
				faults[w] = errors.Join(faults[w], do(nodes[i]))
			}
		})
	}
	working.Wait()
	return errors.Join(faults...)
}

// flatOut changes conditions as fast as the workers can, and gives the changes a second.
func (l *loop) flatOut(ctx context.Context, span time.Duration) (float64, error) {
	began := time.Now()
	before := l.changes.Load()
	for time.Since(began) < span {
		some := l.nodes
		if len(some) > 10*workers {
			first := rand.IntN(len(some) - 10*workers)
			some = some[first : first+10*workers]
		}
		if err := each(some, func(n *node) error { return l.turn(ctx, n, rand.IntN(l.rules)) }); err != nil {
			return 0, err
		}
	}
	return float64(l.changes.Load()-before) / time.Since(began).Seconds(), nil
}

// steady changes conditions at a rate a second, whatever each takes, node after node in a random order, so that a node
// has come right before it is its turn again. It gives how many changes were late because too many were under way.
// retry lets a change be tried until it is stored.
func (l *loop) steady(ctx context.Context, rate float64, span time.Duration, retry bool) (late int, err error) {
	var working sync.WaitGroup
	slots := make(chan struct{}, inFlight)
	faults := make(chan error, inFlight)
	order := rand.Perm(len(l.nodes))
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i, end := 0, time.Now().Add(span); time.Now().Before(end); i++ {
		select {
		case <-ctx.Done():
			return late, ctx.Err()
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			late++
			slots <- struct{}{}
		}
		n, rule := l.nodes[order[i%len(order)]], rand.IntN(l.rules)
		working.Go(func() {
			defer func() { <-slots }()
			err := l.turn(ctx, n, rule)
			for retry && err != nil && wait(ctx, 200*time.Millisecond) == nil {
				err = l.turn(ctx, n, rule)
			}
			if err != nil {
				select {
				case faults <- err:
				default:
				}
			}
		})
	}
	working.Wait()
	close(faults)
	return late, <-faults
}

// check compares every controlled node with its conditions, past all caches.
func (b *bench) check(ctx context.Context) error {
	list, err := b.cluster.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: poolLabel + "=" + controlled})
	if err != nil {
		return err
	}
	have := map[string][]string{}
	for _, n := range list.Items {
		keys := []string{}
		for _, taint := range n.Spec.Taints {
			if strings.HasPrefix(taint.Key, taintPrefix) {
				keys = append(keys, taint.Key)
			}
		}
		slices.Sort(keys)
		have[n.Name] = keys
	}
	var faults []error
	for _, n := range b.ours.nodes {
		want := []string{}
		for rule, fine := range n.fine {
			if !fine {
				want = append(want, taintKey(rule))
			}
		}
		if !slices.Equal(have[n.name], want) {
			faults = append(faults, fmt.Errorf("node %s has taints %v and should have %v", n.name, have[n.name], want))
		}
	}
	if len(faults) > 5 {
		faults = append(faults[:5], fmt.Errorf("and %d more", len(faults)-5))
	}
	return errors.Join(faults...)
}
