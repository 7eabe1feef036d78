package taints

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Seen is what is known of a node beside what it shows now. The zero value knows nothing: every condition counts as it
// is, objects are not ready, and no rule is at its bound.
type Seen struct {
	// Now is the time of the decision, by the controller's monotonic clock.
	Now time.Time
	// History is what was observed of this node up to Now.
	History History
	// Object gives the verdict on an object that a rule requires of the node, and why it is not ready; an empty one while
	// nobody has looked at the object yet. Nil: nothing is known of objects.
	Object func(node *corev1.Node, required readinessv1alpha1.ObjectRequirement) (ready corev1.ConditionStatus, message string)
	// MayHold reports whether a rule with maxTainted may hold this node too. It is asked only for a node that does not
	// fulfil the rule, that is not new to it, and that it does not hold yet. Nil: no rule is at its bound.
	MayHold func(rule *Rule) bool
}

// object gives the verdict on a required object.
func (s Seen) object(node *corev1.Node, required readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
	if s.Object == nil {
		return corev1.ConditionUnknown, "not looked at yet"
	}
	return s.Object(node, required)
}

// spares reports whether the rule leaves a node that does not fulfil it as it is, since it is at its bound. Nodes that it
// holds already stay held, and new ones are held in any case; those that were there before the rule was as it is are not new,
// lest one for which no reporter runs yet, or that was only tried out until now, takes the whole fleet.
func (r *Rule) spares(node *corev1.Node, seen Seen) bool {
	return r.MaxTainted != nil && seen.MayHold != nil && !r.holds(node) && (r.knows(node) || r.found(node)) && !seen.MayHold(r)
}
