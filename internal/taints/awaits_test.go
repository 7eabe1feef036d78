package taints

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// TestUnreadObjectsLeaveNodesAsTheyAre: while nobody has looked at an object, a rule that hangs on it changes nothing, and
// all others go on.
func TestUnreadObjectsLeaveNodesAsTheyAre(t *testing.T) {
	const gpuKey = "readiness.example.com/gpu"
	requires := func(names ...string) edit[apiRule] {
		return func(r *apiRule) {
			for _, name := range names {
				r.Spec.Objects = append(r.Spec.Objects, readinessv1alpha1.ObjectRequirement{Name: name})
			}
		}
	}
	// Objects are ready, not ready or unread, as they are called.
	seen := Seen{Object: func(_ *corev1.Node, required readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
		return map[string]corev1.ConditionStatus{"ready": "True", "wrong": "False"}[required.Name], required.Name
	}}
	ready, unready := has("example.com/Network", "True"), has("example.com/Network", "False")
	held := networkKey + "=pending:NoSchedule"
	holds := func(rules ...edit[corev1.Node]) *corev1.Node {
		return node(append(rules, tainted(held), owns(networkKey, "NoSchedule", uidA))...)
	}

	for _, tc := range []struct {
		name  string
		node  *corev1.Node
		rules []*apiRule
		// has are the taints afterwards; awaits is whether rule A waits.
		has    []string
		awaits bool
	}{
		{name: "a free node stays free", node: node(ready), rules: []*apiRule{rule(uidA, "network", requires("unread"))}, awaits: true},
		{name: "a held node stays held", node: holds(ready), rules: []*apiRule{rule(uidA, "network", requires("unread"))}, has: []string{held}, awaits: true},
		{name: "what is read does not help", node: node(ready), rules: []*apiRule{rule(uidA, "network", requires("ready", "unread"))}, awaits: true},
		{name: "a condition decides by itself", node: node(unready), rules: []*apiRule{rule(uidA, "network", requires("unread"))}, has: []string{held}},
		{name: "so does another object", node: node(ready), rules: []*apiRule{rule(uidA, "network", requires("unread", "wrong"))}, has: []string{held}},
		{name: "a taint that the rule names no more stays until it is decided", node: holds(ready),
			rules: []*apiRule{rule(uidA, "network", requires("unread"), taintKey(gpuKey))}, has: []string{held}, awaits: true},
		{name: "a node that is no longer selected is let go", node: holds(ready), rules: []*apiRule{rule(uidA, "network", requires("unread"), pool("gpu"))}},
		{name: "another rule holds", node: node(ready),
			rules: []*apiRule{rule(uidA, "network", requires("unread")), rule(uidB, "gpu", taintKey(gpuKey), needs("example.com/GPU", "True"))}, has: []string{gpuKey + "=pending:NoSchedule"}, awaits: true},
		{name: "another rule lets go, of its own", node: node(ready, tainted(held, gpuKey+"=pending:NoSchedule"), owns(networkKey, "NoSchedule", uidA), owns(gpuKey, "NoSchedule", uidB)),
			rules: []*apiRule{rule(uidA, "network", requires("unread")), rule(uidB, "gpu", taintKey(gpuKey))}, has: []string{held}, awaits: true},
		{name: "one that was passed is not waited for", node: node(ready, annotated(readinessv1alpha1.BootstrapMarkerPrefix+string(uidA), `{"rule-name":"network"}`)),
			rules: []*apiRule{rule(uidA, "network", bootstrapOnly, requires("unread"))}},
		{name: "none is passed meanwhile", node: holds(ready), rules: []*apiRule{rule(uidA, "network", bootstrapOnly, requires("unread"))}, has: []string{held}, awaits: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := compileAll(tc.rules...)
			decision := Decide(tc.node, rules, seen)
			after := carryOut(tc.node, decision)
			if got := taintStrings(after.Spec.Taints); !slices.Equal(got, tc.has) {
				t.Errorf("taints %v, want %v", got, tc.has)
			}
			if a := rules.Get(uidA); a.Selects(tc.node) && a.Awaits(tc.node, seen) != tc.awaits {
				t.Errorf("awaits: %v", !tc.awaits)
			}
			if again := Decide(after, rules, seen); !again.Empty() {
				t.Errorf("a second decision changes %+v", again)
			}
			if tc.awaits && slices.ContainsFunc(decision.Changes, func(c Change) bool { return slices.Contains(c.Rules, uidA) }) {
				t.Errorf("changes on account of the rule that waits: %+v", decision.Changes)
			}
		})
	}
}
