package rulecheck

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

func TestAutoscalers(t *testing.T) {
	const startup = "startup-taint.cluster-autoscaler.kubernetes.io/x"
	taint := func(key string, effect corev1.TaintEffect) readinessv1alpha1.TaintSpec {
		return readinessv1alpha1.TaintSpec{Key: key, Effect: effect}
	}
	for _, tc := range []struct {
		name   string
		taints []readinessv1alpha1.TaintSpec
		reason string
		names  string
	}{
		{"a key of one's own", []readinessv1alpha1.TaintSpec{taint("r.example.com/x", "NoSchedule")}, readiness.ReasonUnknownToAutoscalers, "r.example.com/x:NoSchedule"},
		{"a startup taint of cluster-autoscaler", []readinessv1alpha1.TaintSpec{taint(startup, "NoSchedule")}, "", ""},
		{"its former name", []readinessv1alpha1.TaintSpec{taint("ignore-taint.cluster-autoscaler.kubernetes.io/x", "NoSchedule")}, "", ""},
		{"a startup taint beside one of one's own", []readinessv1alpha1.TaintSpec{taint("r.example.com/x", "NoSchedule"), taint(startup, "NoSchedule")}, "", ""},
		{"a key that Karpenter knows", []readinessv1alpha1.TaintSpec{taint("readiness.k8s.io/x", "NoSchedule")}, readiness.ReasonUnknownToClusterAutoscaler, "readiness.k8s.io/x:NoSchedule"},
		{"a key that Karpenter knows beside one that nobody does", []readinessv1alpha1.TaintSpec{taint("readiness.k8s.io/x", "NoSchedule"), taint("r.example.com/y", "NoExecute")},
			readiness.ReasonUnknownToAutoscalers, "readiness.k8s.io/x:NoSchedule and r.example.com/y:NoSchedule"},
		{"PreferNoSchedule, for which nobody scales up", []readinessv1alpha1.TaintSpec{taint("r.example.com/x", "PreferNoSchedule")}, "", ""},
		{"a startup taint that keeps no pod away does not help", []readinessv1alpha1.TaintSpec{taint("r.example.com/x", "NoSchedule"), taint(startup, "PreferNoSchedule")},
			readiness.ReasonUnknownToAutoscalers, "r.example.com/x:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, ok := Autoscalers(with(rule("A"), func(s *readinessv1alpha1.NodeReadinessRuleSpec) { s.Taint, s.Taints = tc.taints[0], tc.taints[1:] }))
			if ok != (tc.reason != "") || found.Reason != tc.reason || !strings.Contains(found.Message, tc.names) {
				t.Errorf("found %v: %+v", ok, found)
			}
			if len(found.Message) > 1024 {
				t.Errorf("a message of %d bytes", len(found.Message))
			}
		})
	}
}
