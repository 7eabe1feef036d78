package taints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// TestDecideBeyondUpstream is about the fields of rules that the node readiness controller does not have.
func TestDecideBeyondUpstream(t *testing.T) {
	const (
		pending  = networkKey + "=pending:NoSchedule"
		foreign  = "node.kubernetes.io/not-ready=:NoSchedule"
		otherKey = "readiness.example.com/other"
		ns       = corev1.TaintEffectNoSchedule
	)
	ready, unready := has("example.com/Network", "True"), has("example.com/Network", "False")

	for _, tc := range []decideCase{
		{
			name: "a suspended rule adds nothing", node: node(unready), rules: []*apiRule{rule(uidA, "network", suspended)}, nothing: true,
		},
		{
			name: "a suspended rule keeps what it holds",
			node: node(ready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", suspended)}, nothing: true,
		},
		{
			name: "a suspended rule that is deleted lets its nodes go",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA)), changes: map[ID]Action{{networkKey, ns}: Removed},
		},
		{
			name: "a suspended rule leaves its markers", node: node(unready, booted("2"), markedIn("1")), rules: []*apiRule{rule(uidA, "network", regates, suspended)},
			markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name: "several taints are held together", node: node(unready), rules: []*apiRule{rule(uidA, "network", also("startup.example.com/a=:NoSchedule", otherKey+"=x:PreferNoSchedule"))},
			taints:  []string{pending, otherKey + "=x:PreferNoSchedule", "startup.example.com/a=:NoSchedule"},
			changes: map[ID]Action{{networkKey, ns}: Added, {"startup.example.com/a", ns}: Added, {otherKey, "PreferNoSchedule"}: Added},
		},
		{
			name:  "several taints go together",
			node:  node(ready, tainted(foreign, pending, otherKey+"=x:NoSchedule"), owns(networkKey, ns, uidA), owns(otherKey, ns, uidA)),
			rules: []*apiRule{rule(uidA, "network", also(otherKey+"=x:NoSchedule"))}, taints: []string{foreign},
			changes: map[ID]Action{{networkKey, ns}: Removed, {otherKey, ns}: Removed},
		},
		{
			name: "one of several taints that was removed by hand comes back", node: node(unready, tainted(pending), owns(networkKey, ns, uidA), owns(otherKey, ns, uidA)),
			rules: []*apiRule{rule(uidA, "network", also(otherKey+"=x:NoSchedule"))}, taints: []string{pending, otherKey + "=x:NoSchedule"},
			changes: map[ID]Action{{otherKey, ns}: Added},
		},
		{
			name:  "a taint that a rule no longer names goes when the one in its place comes",
			node:  node(unready, tainted(pending, "old.example.com/a=:NoSchedule"), owns(networkKey, ns, uidA), owns("old.example.com/a", ns, uidA)),
			rules: []*apiRule{rule(uidA, "network", also(otherKey+"=:NoSchedule"))}, taints: []string{pending, otherKey + "=:NoSchedule"},
			changes: map[ID]Action{{otherKey, ns}: Added, {"old.example.com/a", ns}: Removed},
		},
		{
			name: "a taint of several rules goes with the last of them",
			node: node(unready, has("example.com/Storage", "True"), tainted(pending, otherKey+"=pending:NoSchedule"), owns(networkKey, ns, uidA, uidB), owns(otherKey, ns, uidB)),
			rules: []*apiRule{
				rule(uidA, "network"), rule(uidB, "storage", needs("example.com/Storage", "True"), taintKey(otherKey), also(networkKey+"=other:NoSchedule")),
			},
			taints: []string{pending}, record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidA) + `"]}]`,
			changes: map[ID]Action{{otherKey, ns}: Removed},
		},
		{
			name: "eviction is not acknowledged", node: node(unready), rules: []*apiRule{rule(uidA, "network", effect("NoExecute"))},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "an acknowledged eviction takes the place of NoSchedule in one write", node: node(unready, tainted(pending), owns(networkKey, ns, uidA)),
			rules:  []*apiRule{rule(uidA, "network", effect("NoExecute"), allowEviction)},
			taints: []string{networkKey + "=pending:NoExecute"}, changes: map[ID]Action{{networkKey, ns}: Removed, {networkKey, "NoExecute"}: Added},
		},
		{
			name: "and back", node: node(unready, tainted(networkKey+"=pending:NoExecute"), owns(networkKey, "NoExecute", uidA)),
			rules:  []*apiRule{rule(uidA, "network", effect("NoExecute"))},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, "NoExecute"}: Removed, {networkKey, ns}: Added},
		},
		{
			name: "two effects that become one are one taint, with the first value", node: node(unready),
			rules:  []*apiRule{rule(uidA, "network", effect("NoExecute"), also(networkKey+"=other:NoSchedule"))},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "a node new to a bounded rule is held in any case", node: node(unready), seen: atBound, rules: []*apiRule{rule(uidA, "network", atMost("1"))},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added}, check: judgedBy(uidA),
		},
		{
			name: "a node that a bounded rule finds well is known to it from then on", node: node(ready), seen: atBound, rules: []*apiRule{rule(uidA, "network", atMost("1"))},
			check: judgedBy(uidA),
		},
		{
			name: "a rule at its bound leaves a node that it knows as it is", node: node(unready, judged(uidA)), seen: atBound,
			rules: []*apiRule{rule(uidA, "network", atMost("1"))}, nothing: true,
		},
		{
			name: "a rule under its bound holds it", node: node(unready, judged(uidA)), seen: Seen{MayHold: func(*Rule) bool { return true }},
			rules: []*apiRule{rule(uidA, "network", atMost("1"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "a rule at its bound keeps what it holds", node: node(unready, judged(uidA), tainted(pending), owns(networkKey, ns, uidA)), seen: atBound,
			rules: []*apiRule{rule(uidA, "network", atMost("1"))}, nothing: true,
		},
		{
			name: "a rule at its bound migrates what it holds", node: node(unready, judged(uidA), tainted(pending), owns(networkKey, ns, uidA)), seen: atBound,
			rules: []*apiRule{rule(uidA, "network", atMost("1"), taintKey(otherKey))}, taints: []string{otherKey + "=pending:NoSchedule"},
			changes: map[ID]Action{{networkKey, ns}: Removed, {otherKey, ns}: Added},
		},
		{
			name: "a rule at its bound releases", node: node(ready, judged(uidA), tainted(pending), owns(networkKey, ns, uidA)), seen: atBound,
			rules: []*apiRule{rule(uidA, "network", atMost("1"))}, changes: map[ID]Action{{networkKey, ns}: Removed},
		},
		{
			name: "a rule at its bound adopts what is there anyway", node: node(unready, judged(uidA), tainted(pending)), seen: atBound,
			rules: []*apiRule{rule(uidA, "network", atMost("1"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Adopted},
		},
		{
			name: "what judged a node and does not select it any more forgets it", node: node(unready, judged(uidA)),
			rules: []*apiRule{rule(uidA, "network", atMost("1"), pool("control"))}, check: judgedBy(),
		},
		{
			name: "a deleted rule forgets the nodes that it judged", node: node(unready, judged(uidA)), check: judgedBy(),
		},
		{
			name: "a frozen rule forgets nothing", node: node(unready, judged(uidA)), rules: []*apiRule{rule(uidA, "network", atMost("1"), suspended)}, nothing: true,
		},
		{
			name: "a frozen rule judges nothing", node: node(unready), rules: []*apiRule{rule(uidA, "network", atMost("1"), dryRun)}, nothing: true,
		},
		{
			name: "an object that is not ready holds the node", node: node(ready), seen: objectsAre("False"),
			rules: []*apiRule{rule(uidA, "network", object("csi"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "an object that is unknown holds the node", node: node(ready), seen: objectsAre("Unknown"),
			rules: []*apiRule{rule(uidA, "network", object("csi"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "objects nobody looks at hold the node", node: node(ready),
			rules: []*apiRule{rule(uidA, "network", object("csi"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "objects that are ready do not", node: node(ready), seen: objectsAre("True"), rules: []*apiRule{rule(uidA, "network", object("csi"))}, nothing: true,
		},
		{
			name: "ready objects do not stand in for conditions", node: node(unready), seen: objectsAre("True"),
			rules: []*apiRule{rule(uidA, "network", object("csi"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "anyOf is about conditions, not objects", node: node(ready), seen: objectsAre("False"),
			rules: []*apiRule{rule(uidA, "network", anyOf, object("csi"))}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "objects alone", node: node(), seen: objectsAre("True"), rules: []*apiRule{rule(uidA, "network", anyOf, object("csi"), withoutConditions)}, nothing: true,
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

func booted(id string) edit[corev1.Node] {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
}
func markedIn(boot string) edit[corev1.Node] {
	return annotated(readinessv1alpha1.BootstrapMarkerPrefix+string(uidA), `{"rule-name":"network","boot-id":"`+boot+`"}`)
}
func judged(rules ...types.UID) edit[corev1.Node] {
	return annotated(JudgedAnnotation, encodeJudged(rules))
}

var atBound = Seen{MayHold: func(*Rule) bool { return false }}

func objectsAre(status corev1.ConditionStatus) Seen {
	return Seen{Object: func(*corev1.Node, readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
		return status, ""
	}}
}
func object(name string) edit[apiRule] {
	return func(r *apiRule) {
		r.Spec.Objects = append(r.Spec.Objects, readinessv1alpha1.ObjectRequirement{Name: name})
	}
}
func anyOf(r *apiRule)             { r.Spec.ConditionPolicy = readinessv1alpha1.ConditionPolicyAnyOf }
func withoutConditions(r *apiRule) { r.Spec.Conditions = nil }

func markerIs(want string) func(*corev1.Node) string {
	return func(n *corev1.Node) string {
		if got := n.Annotations[readinessv1alpha1.BootstrapMarkerPrefix+string(uidA)]; got != want {
			return "marker " + got
		}
		return ""
	}
}
func judgedBy(want ...types.UID) func(*corev1.Node) string {
	return func(n *corev1.Node) string {
		if got := n.Annotations[JudgedAnnotation]; got != encodeJudged(want) {
			return "judged by " + got
		}
		return ""
	}
}
