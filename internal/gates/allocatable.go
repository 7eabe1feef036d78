package gates

import (
	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// allocatable compares what the node offers. A resource that the node does not have at all is not ready: its device plugin
// has not spoken yet.
func allocatable(node *corev1.Node, required readinessv1alpha1.AllocatableResource) verdict {
	offered, has := node.Status.Allocatable[corev1.ResourceName(required.Resource)]
	switch {
	case !has:
		return no("the node offers no %s, and %s are required", required.Resource, required.AtLeast.String())
	case offered.Cmp(required.AtLeast) < 0:
		return no("the node offers %s of %s, and %s are required", offered.String(), required.Resource, required.AtLeast.String())
	}
	return yes
}
