package taints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

func newNodes(r *apiRule) { r.Spec.TaintNewNodes = true }

func TestAtBirth(t *testing.T) {
	pending := corev1.Taint{Key: networkKey, Value: "pending", Effect: "NoSchedule"}
	foreign := corev1.Taint{Key: "foreign.example.com/a", Effect: "NoSchedule"}
	brings := func(taints ...corev1.Taint) edit[corev1.Node] {
		return func(n *corev1.Node) { n.Spec.Taints = taints }
	}
	for _, tc := range []struct {
		name  string
		node  *corev1.Node
		rules []*apiRule
		want  []corev1.Taint // nil for no change
		owned Record
	}{
		{name: "a rule that asks for it taints the node", rules: []*apiRule{rule(uidA, "a", newNodes)},
			want: []corev1.Taint{pending}, owned: Record{{networkKey, "NoSchedule"}: {uidA}}},
		{name: "a rule that does not ask for it leaves the node alone", rules: []*apiRule{rule(uidA, "a")}},
		{name: "a rule in dry run leaves the node alone", rules: []*apiRule{rule(uidA, "a", newNodes, dryRun)}},
		{name: "a suspended rule leaves the node alone", rules: []*apiRule{rule(uidA, "a", newNodes, func(r *apiRule) { r.Spec.Suspend = true })}},
		{name: "a rule that does not select the node leaves it alone", rules: []*apiRule{rule(uidA, "a", newNodes, pool("other"))}},
		{name: "a rule that is fulfilled from the outset taints the node all the same", want: []corev1.Taint{pending}, owned: Record{{networkKey, "NoSchedule"}: {uidA}},
			rules: []*apiRule{rule(uidA, "a", newNodes, func(r *apiRule) { r.Spec.Conditions[0].DefaultStatus = "True" })}},
		{name: "what the node brings stays, in its place", node: node(brings(foreign)), rules: []*apiRule{rule(uidA, "a", newNodes)},
			want: []corev1.Taint{foreign, pending}, owned: Record{{networkKey, "NoSchedule"}: {uidA}}},
		{name: "a taint that the node brings is not taken over", node: node(brings(corev1.Taint{Key: networkKey, Value: "kubelet", Effect: "NoSchedule"})),
			rules: []*apiRule{rule(uidA, "a", newNodes)}},
		{name: "NoExecute is held as NoSchedule until eviction is acknowledged", rules: []*apiRule{rule(uidA, "a", newNodes, effect("NoExecute"))},
			want: []corev1.Taint{pending}, owned: Record{{networkKey, "NoSchedule"}: {uidA}}},
		{name: "all taints of a rule come together",
			rules: []*apiRule{rule(uidA, "a", newNodes, func(r *apiRule) {
				r.Spec.Taints = []readinessv1alpha1.TaintSpec{{Key: networkKey, Effect: "PreferNoSchedule"}}
			})},
			want:  []corev1.Taint{pending, {Key: networkKey, Effect: "PreferNoSchedule"}},
			owned: Record{{networkKey, "NoSchedule"}: {uidA}, {networkKey, "PreferNoSchedule"}: {uidA}}},
		{name: "two rules with one taint put it on once, with the value of the first by name",
			rules: []*apiRule{rule(uidB, "b", newNodes, taintValue("second")), rule(uidA, "a", newNodes)},
			want:  []corev1.Taint{pending}, owned: Record{{networkKey, "NoSchedule"}: {uidA}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := tc.node
			if n == nil {
				n = node()
			}
			d := AtBirth(n, compileAll(tc.rules...))
			if tc.want == nil {
				if !d.Empty() {
					t.Fatalf("changed: %+v", d)
				}
				return
			}
			n.Annotations[RecordAnnotation] = *d.Annotations[RecordAnnotation]
			if !d.TaintsChanged || !equality.Semantic.DeepEqual(d.Taints, tc.want) || !equality.Semantic.DeepEqual(ReadRecord(n), tc.owned) {
				t.Errorf("taints %+v, record %+v", d.Taints, ReadRecord(n))
			}
		})
	}
}
