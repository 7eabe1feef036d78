package readiness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// preview finds out what a rule in dry run would do, by deciding every node twice: as things are, and with the rule
// enforced. A nil preview is that of a rule that is enforced, and has no results.
type preview struct {
	is, would    *taints.Rules
	rule         *taints.Rule
	memory       *Memory
	now          time.Time
	adds, drops  []string            // nodes
	missing      map[string][]string // nodes by missing condition type
	risky        int32
	affected     int32
	addedTaints  int32
	removedTaint int32
}

func newPreview(s subject, now time.Time) *preview {
	if !s.api.Spec.DryRun || s.fault != nil {
		return nil
	}
	return &preview{is: s.rules, would: s.rules.Enforcing(s.compiled.UID), rule: s.compiled, memory: s.memory, now: now, missing: map[string][]string{}}
}

// left looks at a node that the rule does not select: it may own a taint there from before, and would give it up.
func (p *preview) left(node *corev1.Node) {
	if p != nil && taints.ReadRecord(node).Names(p.rule.UID) {
		p.compare(node)
	}
}

func (p *preview) selected(node *corev1.Node) {
	if p == nil {
		return
	}
	p.compare(node)
	lacks := false
	for _, result := range p.rule.Results(node, p.memory.View(node, p.now)) {
		if result.Missing {
			lacks = true
			p.missing[result.Type] = append(p.missing[result.Type], node.Name)
		}
	}
	if lacks {
		p.risky++
	}
}

func (p *preview) compare(node *corev1.Node) {
	seen := p.memory.View(node, p.now)
	is, would := after(node, p.is, seen), after(node, p.would, seen)
	added, removed := len(minus(would, is)), len(minus(is, would))
	if added > 0 {
		p.adds = append(p.adds, node.Name)
	}
	if removed > 0 {
		p.drops = append(p.drops, node.Name)
	}
	if added+removed > 0 {
		p.affected++
	}
	p.addedTaints += int32(added)
	p.removedTaint += int32(removed)
}

// after gives the taints that a node has once a set of rules was applied.
func after(node *corev1.Node, rules *taints.Rules, seen taints.Seen) []corev1.Taint {
	return taints.Decide(node, rules, seen).Taints
}

// minus gives the taints of a that b lacks, by key and effect.
func minus(a, b []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(a), func(t corev1.Taint) bool {
		return slices.ContainsFunc(b, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
	})
}

func (p *preview) results() *readinessv1alpha1.DryRunResults {
	if p == nil {
		return nil
	}
	return &readinessv1alpha1.DryRunResults{
		AffectedNodes:   p.affected,
		TaintsToAdd:     p.addedTaints,
		TaintsToRemove:  p.removedTaint,
		RiskyOperations: p.risky,
		Summary:         capped(p.summary(), maxSummary),
	}
}

func (p *preview) summary() string {
	var says []string
	if len(p.adds) > 0 {
		says = append(says, fmt.Sprintf("would taint %d: %s", len(p.adds), listed(p.adds)))
	}
	if len(p.drops) > 0 {
		says = append(says, fmt.Sprintf("would untaint %d: %s", len(p.drops), listed(p.drops)))
	}
	if len(says) == 0 {
		says = append(says, "would change no node")
	}
	for _, conditionType := range slices.Sorted(maps.Keys(p.missing)) {
		nodes := p.missing[conditionType]
		says = append(says, fmt.Sprintf("%s is missing on %d: %s", conditionType, len(nodes), listed(nodes)))
	}
	return strings.Join(says, "; ")
}
