package readiness

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/taints"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type apiRule = readinessv1alpha1.NodeReadinessRule

func ruleOf(conditions ...string) *apiRule { return ruleNamed("r", conditions...) }

// ruleNamed gives a rule over pool a.
func ruleNamed(name string, conditions ...string) *apiRule {
	r := &apiRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%-8.8s-0000-4000-8000-000000000000", name)), Generation: 3},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": "a"}},
			EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
			Taint:           readinessv1alpha1.TaintSpec{Key: "r.example.com/" + name, Effect: "NoSchedule"},
		},
	}
	for _, c := range conditions {
		r.Spec.Conditions = append(r.Spec.Conditions, readinessv1alpha1.ConditionRequirement{Type: c, RequiredStatus: "True"})
	}
	return r
}

func nodeNamed(name string, status corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{"pool": "a"}}}
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: status}}
	}
	return n
}

// cluster is rules and nodes, decided as the reconciler does, in place of a cache and an API server.
type cluster struct {
	client.Client
	testing.TB
	rules     []*apiRule
	nodes     map[string]*corev1.Node
	memory    *Memory
	compiled  *Rules
	standings *Standings
	now       time.Time
	told      []events.Event
	// changed counts the judgements by which a status may have changed.
	changed int
}

func newCluster(t testing.TB, rules ...*apiRule) *cluster {
	t.Helper()
	c := &cluster{TB: t, rules: rules, nodes: map[string]*corev1.Node{}, memory: &Memory{}, now: noon}
	c.compiled = NewRules(c, c.memory)
	c.standings = NewStandings(c.compiled, c.memory)
	return c
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *readinessv1alpha1.NodeReadinessRuleList:
		for _, r := range c.rules {
			list.Items = append(list.Items, *r)
		}
	case *corev1.NodeList:
		for _, n := range c.nodes {
			list.Items = append(list.Items, *n)
		}
	}
	return nil
}

// set is the rules as they are.
func (c *cluster) set() *taints.Rules {
	c.Helper()
	if _, err := c.compiled.Reload(c.Context()); err != nil {
		c.Fatal(err)
	}
	return c.compiled.current.Load().set
}

// decide decides nodes and takes down what was decided. fails is the fault of writes, where there is something to write.
func (c *cluster) decide(fails error, nodes ...*corev1.Node) {
	c.Helper()
	rules := c.set()
	for _, was := range nodes {
		decision := taints.Decide(was, rules, c.memory.Look(was, rules, taints.Agent{}, c.now))
		node, fault := was, fails
		if decision.Empty() {
			fault = nil
		}
		if fault == nil {
			node = after(was, decision)
		}
		c.nodes[node.Name] = node
		c.memory.Settle(node, rules, decision)
		told, changed := c.standings.Take(Judgement{Was: was, Node: node, Rules: rules, Decision: decision, Fault: fault, At: c.now})
		c.told = append(c.told, told...)
		if changed {
			c.changed++
		}
	}
}

// after gives a node as a decision leaves it.
func after(n *corev1.Node, d taints.Decision) *corev1.Node {
	n = n.DeepCopy()
	if d.TaintsChanged {
		n.Spec.Taints = d.Taints
	}
	for key, value := range d.Annotations {
		if value == nil {
			delete(n.Annotations, key)
			continue
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = *value
	}
	return n
}

// status judges a rule as it stands.
func (c *cluster) status(r *apiRule, findings ...Finding) readinessv1alpha1.NodeReadinessRuleStatus {
	c.Helper()
	return c.subject(r, findings...).judge(c.now)
}

func (c *cluster) subject(r *apiRule, findings ...Finding) subject {
	c.Helper()
	c.set()
	rules := c.compiled.current.Load()
	nodes, err := listNodes(c.Context(), c)
	if err != nil {
		c.Fatal(err)
	}
	c.standings.settle(nodes, rules.version)
	compiled := rules.byUID[r.UID]
	return subject{
		api: r, compiled: compiled.rule, fault: compiled.fault, view: c.standings.view(r.UID, compiled.since), findings: findings,
		unseen: c.standings.unseen(r.Spec.Conditions), failure: c.standings.failureOf,
		look: func(name string) (*corev1.Node, taints.Seen) {
			n := c.nodes[name]
			return n, c.memory.View(n, c.now)
		},
	}
}
