package taints

import (
	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Fulfilled reports whether the node's conditions are as the rule requires.
func (r *Rule) Fulfilled(node *corev1.Node) bool {
	for _, required := range r.Requirements {
		status, _ := current(node, required)
		if met := status == required.RequiredStatus; met == r.AnyOf {
			return met // anyOf is decided by the first that is met, allOf by the first that is not
		}
	}
	return !r.AnyOf
}

// Results shows each required condition beside what the node has.
func (r *Rule) Results(node *corev1.Node) []readinessv1alpha1.ConditionResult {
	results := make([]readinessv1alpha1.ConditionResult, 0, len(r.Requirements))
	for _, required := range r.Requirements {
		result := readinessv1alpha1.ConditionResult{
			Type:           required.Type,
			CurrentStatus:  corev1.ConditionUnknown,
			RequiredStatus: required.RequiredStatus,
			DefaultStatus:  required.DefaultStatus,
		}
		status, missing := current(node, required)
		if result.Missing = missing; !missing && known(status) {
			result.CurrentStatus = status
		}
		results = append(results, result)
	}
	return results
}

// known reports whether a status is one of the three; reporters can write any text there, and some do.
func known(status corev1.ConditionStatus) bool {
	return status == corev1.ConditionTrue || status == corev1.ConditionFalse || status == corev1.ConditionUnknown
}

// current is the status that counts for a requirement: the node's, else the default, else Unknown.
func current(node *corev1.Node, required readinessv1alpha1.ConditionRequirement) (status corev1.ConditionStatus, missing bool) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; string(c.Type) == required.Type {
			return c.Status, false
		}
	}
	if required.DefaultStatus != "" {
		return required.DefaultStatus, true
	}
	return corev1.ConditionUnknown, true
}
