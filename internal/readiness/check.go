package readiness

import (
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
// memory. Whoever learns that an answer may be another one now calls Status.Wake.
type Check func(rule *readinessv1alpha1.NodeReadinessRule) (found Finding, ok bool)
