package readiness

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Memory holds what was observed of nodes over time, and counts the nodes that bounded rules hold. It may be used
// concurrently. All of it is lost with the process: what must outlive it is on the nodes.
type Memory struct {
	// Objects gives verdicts on objects that rules require; nil for none.
	Objects Objects
	// Blind gives until when nothing that changed in the cluster could be seen; nil for never.
	Blind func() time.Time

	mu        sync.Mutex
	histories map[string]taints.History // by node
	bounds    taints.Bounds
}

// Objects are what rules require beside conditions.
type Objects interface {
	// Require is told of the rules that decisions will be made by. It waits for nothing.
	Require(rules []readinessv1alpha1.NodeReadinessRule)
	// Verdict says whether an object is ready for a node, and why it is not; ready is empty while nobody has looked at it
	// yet. It answers without I/O.
	Verdict(node *corev1.Node, required readinessv1alpha1.ObjectRequirement) (ready corev1.ConditionStatus, message string)
}

// require tells what decisions will be made by.
func (m *Memory) require(rules []readinessv1alpha1.NodeReadinessRule) {
	if m.Objects != nil {
		m.Objects.Require(rules)
	}
}

// verdicts gives verdicts on objects, or nil for none.
func (m *Memory) verdicts() func(*corev1.Node, readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
	if m.Objects == nil {
		return nil
	}
	return m.Objects.Verdict
}

// Look observes a node and gives what is known of it for a decision, which has to be told by Settle.
func (m *Memory) Look(node *corev1.Node, rules *taints.Rules, agent taints.Agent, now time.Time) taints.Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	history := m.histories[node.Name].Observe(node, rules, agent, now)
	m.keep(node.Name, history)
	return taints.Seen{Now: now, History: history, Object: m.verdicts(), MayHold: func(rule *taints.Rule) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.bounds.MayHold(rule.UID, node.Name)
	}}
}

// Settle counts a node as it is after a decision, whether it could be written or not. It gives the nodes that may be held
// now, of those that were spared.
func (m *Memory) Settle(node *corev1.Node, rules *taints.Rules, decision taints.Decision) (called []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bounds.Settle(node, rules, decision.Spared)
}

// Hear takes in the signs of life of a node's reporters. It reports whether the node has to be looked at for them.
func (m *Memory) Hear(node *corev1.Node, rules *taints.Rules, now time.Time) (revived bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	history, known := m.histories[node.Name]
	if !known { // its first look will come
		return false
	}
	history, revived = history.Hear(node, rules, now)
	m.keep(node.Name, history)
	return revived
}

// Doubts reports whether reporters of a node seem to have fallen silent, so that it has to be read live before a decision.
func (m *Memory) Doubts(node *corev1.Node, rules *taints.Rules, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	history, _ := m.histories[node.Name].Hear(node, rules, now)
	if m.Blind != nil {
		history = history.Excuse(m.Blind())
	}
	m.keep(node.Name, history)
	return history.Doubtful(node, rules, now)
}

// Confirm takes in a node that was read live.
func (m *Memory) Confirm(live *corev1.Node, rules *taints.Rules, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	history, _ := m.histories[live.Name].Hear(live, rules, now)
	m.keep(live.Name, history.Confirm(now))
}

// View gives what is known of a node for showing it. A rule at its bound spares what it spared when it was last decided.
func (m *Memory) View(node *corev1.Node, now time.Time) taints.Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return taints.Seen{Now: now, History: m.histories[node.Name], Object: m.verdicts(), MayHold: func(rule *taints.Rule) bool {
		return !m.Spares(rule.UID, node.Name)
	}}
}

// Spares reports whether a rule at its bound left the node as it is when it was last decided.
func (m *Memory) Spares(rule types.UID, node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bounds.Spares(rule, node)
}

// Rebuild takes over other rules, and counts all nodes anew. All nodes have to be looked at afterwards.
func (m *Memory) Rebuild(rules *taints.Rules, nodes []*corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bounds.Rebuild(rules, nodes)
}

// Forget drops a node that is gone. It gives the nodes that may be held now, of those that were spared.
func (m *Memory) Forget(node string) (called []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.histories, node)
	return m.bounds.Forget(node)
}

func (m *Memory) keep(node string, history taints.History) {
	if m.histories == nil {
		m.histories = map[string]taints.History{}
	}
	m.histories[node] = history
}
