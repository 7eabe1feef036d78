package rulecheck

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Prefixes of taint keys that autoscalers know without being told.
var (
	// clusterAutoscalerPrefixes : cluster-autoscaler counts a node with such a taint as one that is still starting, and
	// leaves the taint out when it works out what a new node would be like.
	clusterAutoscalerPrefixes = []string{
		"startup-taint.cluster-autoscaler.kubernetes.io/",
		"status-taint.cluster-autoscaler.kubernetes.io/",
		"ignore-taint.cluster-autoscaler.kubernetes.io/", // its former name for startup taints
	}
	// karpenterPrefixes : Karpenter takes such a taint for one that goes by itself, and the node for one that is starting.
	karpenterPrefixes = []string{"readiness.k8s.io/"}
)

// Autoscalers is a readiness.Check: it finds rules whose taints autoscalers do not know by themselves. Whether they were told
// of them, and whether there is one in the cluster, it cannot know.
func Autoscalers(rule *readinessv1alpha1.NodeReadinessRule) (readiness.Finding, bool) {
	compiled, _ := taints.Compile(rule) // a selector that cannot be parsed is found elsewhere
	var unknown []string
	starting, ephemeral := false, true
	for _, t := range compiled.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule { // keeps no pod away, so nobody scales up for it
			continue
		}
		byClusterAutoscaler, byKarpenter := hasPrefix(t.Key, clusterAutoscalerPrefixes), hasPrefix(t.Key, karpenterPrefixes)
		starting, ephemeral = starting || byClusterAutoscaler, ephemeral && byKarpenter
		if !byClusterAutoscaler {
			unknown = append(unknown, t.String())
		}
	}
	// One startup taint is enough for cluster-autoscaler: it draws conclusions from nodes without one only.
	if starting || len(unknown) == 0 {
		return readiness.Finding{}, false
	}
	named := strings.Join(unknown, " and ")
	if ephemeral {
		return readiness.Finding{
			Reason: readiness.ReasonUnknownToClusterAutoscaler,
			Message: fmt.Sprintf("Karpenter knows %s for a taint that goes by itself; cluster-autoscaler, unless --startup-taint names it, "+
				"may expect new nodes to keep it, and not scale up for pods that do not tolerate it", named),
		}, true
	}
	return readiness.Finding{
		Reason: readiness.ReasonUnknownToAutoscalers,
		Message: fmt.Sprintf("cluster-autoscaler, unless --startup-taint names %[1]s, may expect new nodes to keep it, and not scale up for "+
			"pods that do not tolerate it; Karpenter, unless startupTaints of the NodePool name it, may launch a second node for the pods "+
			"that wait for a held one", named),
	}, true
}

func hasPrefix(key string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
