package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/nodewriter"
)

// A node is looked at again for what decisions read, as the cache shows it, and for nothing else.
func TestWhatMattersOfANode(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{name: "nothing", change: func(*corev1.Node) {}},
		{name: "a heartbeat", change: func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: time.Unix(1, 0)}
		}},
		{name: "a message", change: func(n *corev1.Node) { n.Status.Conditions[0].Message = "other" }},
		{name: "images", change: func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}} }},
		{name: "annotations of others", change: func(n *corev1.Node) { n.Annotations["example.com/a"] = "other" }},
		{name: "a status", change: func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }, want: true},
		{name: "another condition", change: func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "B", Status: "True"})
		}, want: true},
		{name: "a label", change: func(n *corev1.Node) { n.Labels = map[string]string{"pool": "other"} }, want: true},
		{name: "a taint", change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}} }, want: true},
		{name: "our record", change: func(n *corev1.Node) { n.Annotations["fettle.dev/taints"] = "[]" }, want: true},
		{name: "a boot", change: func(n *corev1.Node) { n.Status.NodeInfo.BootID = "other" }, want: true},
		{name: "what it offers", change: func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
		}, want: true},
		{name: "a cordon", change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: true},
		{name: "its end", change: func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{"example.com/a": "b"}},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "A", Status: "True"}}},
			}
			after := before.DeepCopy()
			tc.change(after)
			if got := matters(trim(t, before), trim(t, after)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func trim(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	trimmed, err := nodewriter.Trim(n)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(*corev1.Node)
}
