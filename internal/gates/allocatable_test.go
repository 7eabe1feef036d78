package gates

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

func TestAllocatable(t *testing.T) {
	for _, tc := range []struct {
		name    string
		offered string // of nvidia.com/gpu; empty: the node does not know it
		atLeast string
		want    corev1.ConditionStatus
		says    string
	}{
		{name: "as much", offered: "8", atLeast: "8", want: "True"},
		{name: "more", offered: "8", atLeast: "1", want: "True"},
		{name: "less", offered: "7", atLeast: "8", want: "False", says: "offers 7 of nvidia.com/gpu, and 8"},
		{name: "none while a device plugin is away", offered: "0", atLeast: "1", want: "False", says: "offers 0"},
		{name: "a resource that the node does not know", atLeast: "1", want: "False", says: "no nvidia.com/gpu"},
		{name: "a resource that the node does not know, and of which nothing is required but that it does", atLeast: "0", want: "False", says: "no nvidia.com/gpu"},
		{name: "other units", offered: "2Gi", atLeast: "2000Mi", want: "True"},
		{name: "parts", offered: "1500m", atLeast: "2", want: "False"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{}
			if tc.offered != "" {
				node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(tc.offered)}
			}
			// Gates that watch nothing answer, too: the node is all that is needed.
			ready, message := (&Gates{}).Verdict(node, readinessv1alpha1.ObjectRequirement{
				Name: "gpus", Allocatable: &readinessv1alpha1.AllocatableResource{Resource: "nvidia.com/gpu", AtLeast: resource.MustParse(tc.atLeast)},
			})
			if ready != tc.want || !strings.Contains(message, tc.says) || (message == "") != (ready == "True") {
				t.Errorf("%s %q", ready, message)
			}
		})
	}
}
