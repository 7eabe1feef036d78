package nodewriter

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// othersAnnotations stands for the annotations of a node that has some, but none of ours: a patch has to know whether
// the map exists. It is shared by all nodes and never changed.
var othersAnnotations = map[string]string{"fettle.dev/others": ""}

// common are the names that trimmed nodes share.
var common names

// Trim leaves of a Node what decisions read: names, labels, our annotations, taints, the boot ID, allocatable resources, and
// of conditions type, status, heartbeat and the reasons that the controller goes by. It is a transform of caches: but for
// heartbeats, which are signs of life and no more, two trimmed versions of a node differ only where a decision could.
// Objects other than Nodes pass unchanged.
func Trim(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:              node.Name,
			UID:               node.UID,
			ResourceVersion:   node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp,
			DeletionTimestamp: node.DeletionTimestamp,
			Labels:            common.keys(node.Labels),
			Annotations:       trimAnnotations(node.Annotations),
		},
		Spec: corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
	}
	trimmed.Status.NodeInfo.BootID = node.Status.NodeInfo.BootID
	trimmed.Status.Allocatable = node.Status.Allocatable
	if all := node.Status.Conditions; len(all) > 0 {
		trimmed.Status.Conditions = make([]corev1.NodeCondition, 0, len(all))
	}
	for _, c := range node.Status.Conditions {
		kept := corev1.NodeCondition{
			Type:              corev1.NodeConditionType(common.one(string(c.Type))),
			Status:            corev1.ConditionStatus(common.one(string(c.Status))),
			LastHeartbeatTime: c.LastHeartbeatTime,
		}
		switch c.Reason { // constants, so that no string of the node is held
		case fettlev1alpha1.ReasonAgentSilent:
			kept.Reason = fettlev1alpha1.ReasonAgentSilent
		case fettlev1alpha1.ReasonHeartbeatImpaired:
			kept.Reason = fettlev1alpha1.ReasonHeartbeatImpaired
		}
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, kept)
	}
	return trimmed, nil
}

func trimAnnotations(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	var ours map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, "fettle.dev/") || strings.HasPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix) {
			if ours == nil {
				ours = map[string]string{}
			}
			ours[key] = value
		}
	}
	if ours == nil {
		return othersAnnotations
	}
	return ours
}
