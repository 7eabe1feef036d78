package readiness

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Finding is something that the owner of a rule should know: a condition of the rule is set while it is found.
type Finding struct {
	// Reason is one of Statements, which give the condition's type and status.
	Reason string
	// Message says it of this rule, in up to 1,024 bytes.
	Message string
}

// Check looks at a rule itself, rather than at what became of it on nodes: whether it is at odds with another rule, whether
// the pods that report its conditions tolerate its taints. It is asked at every pass over the rules, and answers from
// memory. Whoever learns that an answer may be another one now calls Status.WakeAll.
type Check func(rule *readinessv1alpha1.NodeReadinessRule) (found Finding, ok bool)

// findings asks all checks about a rule.
func (s *Status) findings(rule *readinessv1alpha1.NodeReadinessRule, rules *compiledRules) []Finding {
	var found []Finding
	for _, check := range append([]Check{rules.conflict, evictionWithheld}, s.Checks...) {
		if f, ok := check(rule); ok {
			found = append(found, f)
		}
	}
	return found
}

// evictionWithheld finds that a rule asks for eviction without saying that this is meant.
func evictionWithheld(rule *readinessv1alpha1.NodeReadinessRule) (Finding, bool) {
	if rule.Spec.AllowEviction {
		return Finding{}, false
	}
	var keys []string
	for _, t := range append([]readinessv1alpha1.TaintSpec{rule.Spec.Taint}, rule.Spec.Taints...) {
		if t.Effect == corev1.TaintEffectNoExecute {
			keys = append(keys, t.Key)
		}
	}
	if len(keys) == 0 {
		return Finding{}, false
	}
	slices.Sort(keys)
	return Finding{ReasonEvictionWithheld, fmt.Sprintf("%s would evict pods past every PodDisruptionBudget, and is held with NoSchedule until allowEviction says that this is meant",
		strings.Join(keys, ", "))}, true
}

// conflict finds that other rules may say something else about a taint of the rule on the same nodes.
func (c *compiledRules) conflict(rule *readinessv1alpha1.NodeReadinessRule) (Finding, bool) {
	var says []string
	for _, conflict := range c.conflicts {
		other := conflict.Second
		switch rule.UID {
		case conflict.First.UID:
		case conflict.Second.UID:
			other = conflict.First
		default:
			continue
		}
		words := fmt.Sprintf("with rule %s about when %s is held: a node is held while either rule holds it", other.Name, conflict.Taint)
		if conflict.Values {
			words = fmt.Sprintf("with rule %s about the value of %s: where both hold a node it is that of rule %s", other.Name, conflict.Taint, conflict.First.Name)
		}
		says = append(says, words)
	}
	return Finding{ReasonTaintShared, strings.Join(says, "; ")}, len(says) > 0
}
