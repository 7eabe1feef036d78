package taints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// The API server takes any text as the status of a Node condition. What a rule shows must be one of the three, or its
// whole status is refused.
func TestResultsShowStatusesThatExist(t *testing.T) {
	for status, shown := range map[corev1.ConditionStatus]corev1.ConditionStatus{
		"True": "True", "False": "False", "Unknown": "Unknown", "true": "Unknown", "": "Unknown", "broken": "Unknown",
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "example.com/Odd", Status: status}}}}
		r := &Rule{Requirements: []readinessv1alpha1.ConditionRequirement{{Type: "example.com/Odd", RequiredStatus: "True"}}}
		got := r.Results(n, Seen{})[0]
		if got.CurrentStatus != shown || got.Missing {
			t.Errorf("status %q is shown as %q, missing: %t", status, got.CurrentStatus, got.Missing)
		}
		if r.Fulfilled(n, Seen{}) != (status == "True") {
			t.Errorf("status %q fulfils True: %t", status, r.Fulfilled(n, Seen{}))
		}
	}
}
