package gates

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/tolerations"
)

func TestJudgeDaemonSet(t *testing.T) {
	gpuNodes := corev1.PodSpec{NodeSelector: map[string]string{"gpu": "yes"}}
	outOfRack1 := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: "NotIn", Values: []string{"1"}}}}},
	}}}}
	held := corev1.Taint{Key: "readiness.k8s.io/gpu", Value: "pending", Effect: "NoSchedule"}
	tolerant := corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "readiness.k8s.io/gpu", Operator: "Exists"}}}
	rated := corev1.Taint{Key: "sla.example.com/rate", Value: "5", Effect: "NoSchedule"}
	above3 := corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "sla.example.com/rate", Operator: corev1.TolerationOpGt, Value: "3", Effect: "NoSchedule"}}}

	for _, tc := range []struct {
		name   string
		set    daemonSet // at generation 2, and observed so, unless it says otherwise
		no     bool      // the DaemonSet has no revision yet
		pods   []pod
		labels map[string]string
		taints []corev1.Taint
		// compares says that the cluster knows Lt and Gt.
		compares tolerations.Comparison
		want     corev1.ConditionStatus
		says     string
	}{
		{name: "a pod of the newest revision is ready", pods: []pod{{name: "a", hash: "new", ready: true}}, want: "True"},
		{name: "it is not ready", pods: []pod{{name: "a", hash: "new"}}, want: "False", says: "pod a is not ready"},
		{name: "it is ready and on its way out", pods: []pod{{name: "a", hash: "new", ready: true, deleting: true}}, want: "False", says: "pod a is being deleted"},
		{name: "it is of an older revision", pods: []pod{{name: "a", hash: "old", ready: true}}, want: "False", says: "pod a is of an older revision"},
		{
			name: "it is of an older revision, and nobody replaces it", set: daemonSet{onDelete: true}, pods: []pod{{name: "a", hash: "old", ready: true}},
			want: "False", says: "OnDelete stays so until it is deleted",
		},
		{name: "with OnDelete, too, the newest revision is as good", set: daemonSet{onDelete: true}, pods: []pod{{name: "a", hash: "new", ready: true}}, want: "True"},
		{
			name: "during an update with surge, the new pod is not ready yet", pods: []pod{{name: "a", hash: "old", ready: true}, {name: "b", hash: "new"}},
			want: "False", says: "pod b is not ready",
		},
		{name: "during an update with surge, the new pod is ready", pods: []pod{{name: "a", hash: "old", ready: true, deleting: true}, {name: "b", hash: "new", ready: true}}, want: "True"},
		{name: "one of two new pods is on its way out", pods: []pod{{name: "a", hash: "new", deleting: true}, {name: "b", hash: "new", ready: true}}, want: "True"},
		{name: "the DaemonSet is on its way out", set: daemonSet{deleting: true}, pods: []pod{{name: "a", hash: "new", ready: true}}, want: "False", says: "is being deleted"},
		{name: "its controller has not seen the newest template", set: daemonSet{observed: 1}, pods: []pod{{name: "a", hash: "new", ready: true}}, want: "False", says: "has changed"},
		{name: "it has no revision yet", no: true, want: "False", says: "no revision"},
		{name: "no pod though the DaemonSet should run here", want: "False", says: "it has not been made or scheduled yet"},
		{name: "no pod, since the node has not the label", set: daemonSet{placement: gpuNodes}, want: "False", says: "nodeSelector or node affinity"},
		{name: "no pod though the node has the label", set: daemonSet{placement: gpuNodes}, labels: map[string]string{"gpu": "yes"}, want: "False", says: "scheduled yet"},
		{name: "no pod, since the affinity leaves the node out", set: daemonSet{placement: outOfRack1}, labels: map[string]string{"rack": "1"}, want: "False", says: "nodeSelector or node affinity"},
		{name: "a pod of before the node lost the label counts", set: daemonSet{placement: gpuNodes}, pods: []pod{{name: "a", hash: "new", ready: true}}, want: "True"},
		{name: "no pod, since it does not tolerate the rule's own taint", taints: []corev1.Taint{held}, want: "False", says: "do not tolerate taint readiness.k8s.io/gpu=pending:NoSchedule"},
		{name: "no pod, and it would tolerate the taint", set: daemonSet{placement: tolerant}, taints: []corev1.Taint{held}, want: "False", says: "scheduled yet"},
		{name: "no pod, and its toleration with Gt matches nothing in this cluster", set: daemonSet{placement: above3}, taints: []corev1.Taint{rated}, want: "False", says: "do not tolerate taint sla.example.com/rate=5:NoSchedule"},
		{name: "no pod, and its toleration with Gt matches", set: daemonSet{placement: above3}, taints: []corev1.Taint{rated}, compares: tolerations.WithComparison, want: "False", says: "scheduled yet"},
		{
			name: "taints of Kubernetes do not keep pods of DaemonSets away", taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: "NoExecute"}},
			want: "False", says: "scheduled yet",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.set.generation = 2
			if tc.set.observed == 0 {
				tc.set.observed = 2
			}
			current := revision{number: 2, hash: "new"}
			if tc.no {
				current = revision{}
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels}, Spec: corev1.NodeSpec{Taints: tc.taints}}
			got := judge("DaemonSet a/b", tc.set, current, tc.pods, node, tc.compares)
			if got.ready != tc.want || !strings.Contains(got.message, tc.says) || (got.message == "") != (got.ready == "True") {
				t.Errorf("%s %q", got.ready, got.message)
			}
		})
	}
}

func TestNewestRevision(t *testing.T) {
	for _, tc := range []struct {
		name      string
		revisions map[string]revision
		want      string
	}{
		{name: "none"},
		{name: "the greatest number", revisions: map[string]revision{"a": {1, "old"}, "b": {2, "new"}}, want: "new"},
		{name: "a template that was put back", revisions: map[string]revision{"a": {3, "old"}, "b": {2, "new"}}, want: "old"},
		{name: "two digits", revisions: map[string]revision{"a": {9, "nine"}, "b": {10, "ten"}}, want: "ten"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := newest(tc.revisions).hash; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhoseArePodsAndRevisions(t *testing.T) {
	ours := []metav1.OwnerReference{{UID: "set", Controller: new(true)}}
	for _, tc := range []struct {
		name   string
		owners []metav1.OwnerReference
		node   string
		want   bool
	}{
		{name: "made by the DaemonSet", owners: ours, node: "n", want: true},
		{name: "not on a node yet", owners: ours},
		{name: "with the same labels, and made by nobody", node: "n"},
		{name: "made by another of the same name, which is gone", owners: []metav1.OwnerReference{{UID: "gone", Controller: new(true)}}, node: "n"},
		{name: "owned, and made by somebody else", owners: []metav1.OwnerReference{{UID: "set"}, {UID: "other", Controller: new(true)}}, node: "n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"controller-revision-hash": "h"}, OwnerReferences: tc.owners}
			p, ok := podsOf("set")(&corev1.Pod{
				ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: tc.node},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}}},
			})
			if ok != tc.want || ok && p != (pod{name: "a", node: "n", hash: "h", ready: true}) {
				t.Errorf("pod: %v %+v", ok, p)
			}
			r, ok := revisionsOf("set")(&appsv1.ControllerRevision{ObjectMeta: meta, Revision: 7})
			if want := tc.want || tc.node == ""; ok != want || ok && r != (revision{7, "h"}) {
				t.Errorf("revision: %v %+v", ok, r)
			}
		})
	}
}
