package taints

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

func TestDecide(t *testing.T) {
	const (
		pending  = networkKey + "=pending:NoSchedule"
		foreign  = "node.kubernetes.io/not-ready=:NoSchedule"
		otherKey = "readiness.example.com/other"
		ns       = corev1.TaintEffectNoSchedule
	)
	ready, unready := has("example.com/Network", "True"), has("example.com/Network", "False")
	marked := annotated(readinessv1alpha1.BootstrapMarkerPrefix+string(uidA), `{"rule-name":"network"}`)

	for _, tc := range []decideCase{
		{
			name: "a node that lacks the condition is held", node: node(), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{pending}, record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidA) + `"]}]`,
			changes: map[ID]Action{{networkKey, ns}: Added}, by: map[ID]types.UID{{networkKey, ns}: uidA},
		},
		{
			name: "a node whose condition is not as required is held", node: node(unready), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "a fulfilled rule asks nothing", node: node(ready), rules: []*apiRule{rule(uidA, "network")}, nothing: true,
		},
		{
			name: "a held node that got ready is let go and the record vanishes",
			node: node(ready, tainted(foreign, pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{foreign}, changes: map[ID]Action{{networkKey, ns}: Removed}, by: map[ID]types.UID{{networkKey, ns}: uidA},
			check: unrecorded,
		},
		{
			name: "a held node stays held without a write",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network")}, nothing: true,
		},
		{
			name: "a taint that the kubelet registered with is adopted, once",
			node: node(unready, tainted(pending)), rules: []*apiRule{rule(uidA, "network")}, taints: []string{pending},
			record:  `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidA) + `"]}]`,
			changes: map[ID]Action{{networkKey, ns}: Adopted},
		},
		{
			name: "a taint that the kubelet registered with is removed when the rule is fulfilled already",
			node: node(ready, tainted(pending)), rules: []*apiRule{rule(uidA, "network")}, changes: map[ID]Action{{networkKey, ns}: Removed},
		},
		{
			name: "an adopted taint gets the rule's value",
			node: node(tainted(networkKey + "=other:NoSchedule")), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Adopted},
		},
		{
			name: "another effect of the same key is another taint",
			node: node(ready, tainted(networkKey+"=pending:NoExecute")), rules: []*apiRule{rule(uidA, "network")}, nothing: true,
		},
		{
			name: "a foreign taint stays whatever the rules say",
			node: node(ready, tainted(foreign, "dedicated=gpu:NoExecute")), rules: []*apiRule{rule(uidA, "network")}, nothing: true,
		},
		{
			name: "a node that is not selected is left alone", node: node(tainted(pending)),
			rules: []*apiRule{rule(uidA, "network", pool("control"))}, nothing: true,
		},
		{
			name: "a node relabelled out of the rule is let go",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", pool("control"))},
			changes: map[ID]Action{{networkKey, ns}: Removed}, by: map[ID]types.UID{{networkKey, ns}: uidA},
		},
		{
			name: "a deleted rule lets its nodes go", node: node(unready, tainted(foreign, pending), owns(networkKey, ns, uidA)),
			taints: []string{foreign}, changes: map[ID]Action{{networkKey, ns}: Removed}, by: map[ID]types.UID{{networkKey, ns}: uidA},
		},
		{
			name: "a rule that is being deleted lets its nodes go", node: node(unready, tainted(pending), owns(networkKey, ns, uidA)),
			rules:   []*apiRule{rule(uidA, "network", func(r *apiRule) { r.DeletionTimestamp = &metav1.Time{Time: noon} })},
			changes: map[ID]Action{{networkKey, ns}: Removed},
		},
		{
			name: "an edited key migrates in one step", node: node(unready, tainted(pending), owns(networkKey, ns, uidA)),
			rules:   []*apiRule{rule(uidA, "network", taintKey(otherKey))},
			taints:  []string{otherKey + "=pending:NoSchedule"},
			changes: map[ID]Action{{networkKey, ns}: Removed, {otherKey, ns}: Added},
		},
		{
			name:    "an edited effect migrates in one step, and NoExecute tells since when",
			node:    node(unready, tainted(pending), owns(networkKey, ns, uidA)),
			rules:   []*apiRule{rule(uidA, "network", effect(corev1.TaintEffectNoExecute), allowEviction)},
			taints:  []string{networkKey + "=pending:NoExecute"},
			changes: map[ID]Action{{networkKey, ns}: Removed, {networkKey, corev1.TaintEffectNoExecute}: Added},
			check: func(n *corev1.Node) string {
				if at := n.Spec.Taints[0].TimeAdded; at == nil || !at.Time.Equal(noon.Truncate(time.Second)) {
					return "timeAdded is not the time of the decision"
				}
				return ""
			},
		},
		{
			name: "an edited value follows", node: node(unready, tainted(pending), owns(networkKey, ns, uidA)),
			rules: []*apiRule{rule(uidA, "network", taintValue("broken"))}, taints: []string{networkKey + "=broken:NoSchedule"},
		},
		{
			name:   "two rules of one taint hold it while either is not fulfilled; the value is that of the first by name that holds",
			node:   node(unready, has("example.com/Storage", "False")),
			rules:  []*apiRule{rule(uidB, "zz"), rule(uidA, "aa", needs("example.com/Storage", "True"), taintValue("storage"))},
			taints: []string{networkKey + "=storage:NoSchedule"}, changes: map[ID]Action{{networkKey, ns}: Added}, by: map[ID]types.UID{{networkKey, ns}: uidA},
			record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidA) + `","` + string(uidB) + `"]}]`,
		},
		{
			name:   "when one of two rules is fulfilled the other keeps the taint",
			node:   node(unready, has("example.com/Storage", "True"), tainted(networkKey+"=storage:NoSchedule"), owns(networkKey, ns, uidA, uidB)),
			rules:  []*apiRule{rule(uidB, "zz"), rule(uidA, "aa", needs("example.com/Storage", "True"), taintValue("storage"))},
			taints: []string{pending}, record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidB) + `"]}]`,
		},
		{
			name: "when one of two rules is deleted the other keeps the taint",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA, uidB)), rules: []*apiRule{rule(uidB, "zz")},
			taints: []string{pending}, record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidB) + `"]}]`,
		},
		{
			name: "a dry run adds nothing", node: node(unready), rules: []*apiRule{rule(uidA, "network", dryRun)}, nothing: true,
		},
		{
			name: "a dry run removes nothing that somebody else put there",
			node: node(ready, tainted(pending)), rules: []*apiRule{rule(uidA, "network", dryRun)}, nothing: true,
		},
		{
			name: "a rule put into dry run keeps what it holds, fulfilled or not",
			node: node(ready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", dryRun)}, nothing: true,
		},
		{
			name: "a rule put into dry run keeps what it holds under its old key",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", dryRun, taintKey(otherKey))}, nothing: true,
		},
		{
			name: "a rule in dry run that is deleted lets its nodes go",
			node: node(unready, tainted(pending), owns(networkKey, ns, uidA)), changes: map[ID]Action{{networkKey, ns}: Removed},
		},
		{
			name: "a dry run completes no bootstrap", node: node(ready), rules: []*apiRule{rule(uidA, "network", bootstrapOnly, dryRun)}, nothing: true,
		},
		{
			name: "a rule in dry run does not keep a taint that a person removed",
			node: node(unready, owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", dryRun)},
		},
		{
			name: "a rule whose selector cannot be parsed changes nothing",
			node: node(ready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", unparsable)}, nothing: true,
		},
		{
			name: "a bootstrap that is not done holds the node", node: node(), rules: []*apiRule{rule(uidA, "network", bootstrapOnly)},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "a bootstrap that gets done unties the node and marks it in one write",
			node: node(ready, tainted(pending), owns(networkKey, ns, uidA)), rules: []*apiRule{rule(uidA, "network", bootstrapOnly)},
			markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, changes: map[ID]Action{{networkKey, ns}: Removed},
			check: markerIs(`{"rule-name":"network"}`),
		},
		{
			name: "a node that never needed the taint gets the marker alone", node: node(ready), rules: []*apiRule{rule(uidA, "network", bootstrapOnly)},
			markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)},
		},
		{
			name: "after its bootstrap a node is never held again", node: node(unready, marked), rules: []*apiRule{rule(uidA, "network", bootstrapOnly)},
			markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name: "after its bootstrap a taint put there by hand stays",
			node: node(ready, marked, tainted(pending)), rules: []*apiRule{rule(uidA, "network", bootstrapOnly)},
			taints: []string{pending}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name:  "the marker of another rule of the same name does not count and goes",
			node:  node(annotated(readinessv1alpha1.BootstrapMarkerPrefix+string(uidB), `{"rule-name":"network"}`)),
			rules: []*apiRule{rule(uidA, "network", bootstrapOnly)}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "the marker of a rule that holds continuously now goes, so that the node has to pass again", node: node(ready, marked), rules: []*apiRule{rule(uidA, "network")},
		},
		{
			name: "the marker of a deleted rule goes", node: node(marked),
		},
		{
			name:    "a marker that ends in the name of no rule stays",
			node:    node(annotated(readinessv1alpha1.BootstrapMarkerPrefix+"network", "true")),
			markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + "network"}, nothing: true,
		},
		{
			name:  "a marker that ends in a rule's name counts, and moves to the rule's UID",
			node:  node(unready, annotated(readinessv1alpha1.BootstrapMarkerPrefix+"network", "true")),
			rules: []*apiRule{rule(uidA, "network", bootstrapOnly)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)},
			check: markerIs(`{"rule-name":"network"}`),
		},
		{
			name:  "a marker that ends in the name of a rule in dry run stays",
			node:  node(unready, annotated(readinessv1alpha1.BootstrapMarkerPrefix+"network", "true")),
			rules: []*apiRule{rule(uidA, "network", bootstrapOnly, dryRun)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + "network"}, nothing: true,
		},
		{
			name: "a bootstrap to pass after every reboot is marked with the boot", node: node(ready, booted("1")),
			rules: []*apiRule{rule(uidA, "network", regates)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)},
			check: markerIs(`{"rule-name":"network","boot-id":"1"}`),
		},
		{
			name: "a node that passed in this boot stays free", node: node(unready, booted("1"), markedIn("1")),
			rules: []*apiRule{rule(uidA, "network", regates)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name: "a node that was rebooted since is held again, and the marker goes in the same write", node: node(unready, booted("2"), markedIn("1")),
			rules: []*apiRule{rule(uidA, "network", regates)}, taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
		{
			name: "a reboot does not matter to a rule that does not ask for it", node: node(unready, booted("2"), markedIn("1")),
			rules: []*apiRule{rule(uidA, "network", bootstrapOnly)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name: "a node that passed in an unknown boot passed in this one", node: node(unready, booted("2"), marked),
			rules: []*apiRule{rule(uidA, "network", regates)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)},
			check: markerIs(`{"rule-name":"network","boot-id":"2"}`),
		},
		{
			name: "a node that does not tell its boot was not rebooted", node: node(unready, markedIn("1")),
			rules: []*apiRule{rule(uidA, "network", regates)}, markers: []string{readinessv1alpha1.BootstrapMarkerPrefix + string(uidA)}, nothing: true,
		},
		{
			name: "a broken record is rebuilt from what is wanted",
			node: node(unready, tainted(pending), annotated(RecordAnnotation, "{broken")), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{pending}, record: `[{"key":"` + networkKey + `","effect":"NoSchedule","rules":["` + string(uidA) + `"]}]`,
			changes: map[ID]Action{{networkKey, ns}: Adopted},
		},
		{
			name: "a record that claims taints which no rule can own does not make them ours, and the claim goes",
			node: node(ready, tainted(foreign, "dedicated=gpu:NoExecute", "node-role.kubernetes.io/control-plane=:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized=:NoSchedule"),
				annotated(RecordAnnotation, `[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule","rules":["`+string(uidA)+`"]},`+
					`{"key":"dedicated","effect":"NoExecute","rules":["`+string(uidA)+`"]},`+
					`{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule","rules":["`+string(uidB)+`"]},`+
					`{"key":"node.cloudprovider.kubernetes.io/uninitialized","effect":"NoSchedule","rules":["x"]}]`)),
			rules:  []*apiRule{rule(uidA, "network")},
			taints: []string{foreign, "dedicated=gpu:NoExecute", "node-role.kubernetes.io/control-plane=:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized=:NoSchedule"},
			check:  unrecorded,
		},
		{
			name: "a record that claims such a taint beside one of ours lets ours go alone",
			node: node(tainted(foreign, pending), annotated(RecordAnnotation, `[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule","rules":["`+string(uidA)+`"]},`+
				`{"key":"`+networkKey+`","effect":"NoSchedule","rules":["`+string(uidA)+`"]}]`)),
			taints: []string{foreign}, changes: map[ID]Action{{networkKey, ns}: Removed}, check: unrecorded,
		},
		{
			name: "a node without annotations", node: node(func(n *corev1.Node) { n.Annotations = nil }), rules: []*apiRule{rule(uidA, "network")},
			taints: []string{pending}, changes: map[ID]Action{{networkKey, ns}: Added},
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

// decideCase is a node and rules, and what comes of deciding.
type decideCase struct {
	name    string
	node    *corev1.Node
	rules   []*apiRule
	seen    Seen
	taints  []string         // as the node has them afterwards
	record  string           // as the node has it afterwards
	markers []string         // keys of bootstrap markers afterwards
	changes map[ID]Action    // what is told
	by      map[ID]types.UID // the first rule that a change names
	nothing bool             // nothing may be written
	check   func(*corev1.Node) string
}

func (tc decideCase) run(t *testing.T) {
	before := tc.node.DeepCopy()
	tc.seen.Now = noon
	d := Decide(tc.node, compileAll(tc.rules...), tc.seen)
	if got, want := tc.node.String(), before.String(); got != want {
		t.Fatalf("Decide changed the node it was given:\n%s\n%s", got, want)
	}
	if tc.nothing != d.Empty() {
		t.Fatalf("empty decision: got %v, want %v: %+v", d.Empty(), tc.nothing, d)
	}
	after := carryOut(tc.node, d)
	if tc.nothing && tc.taints == nil {
		tc.taints = taintStrings(before.Spec.Taints)
	}
	if got := taintStrings(after.Spec.Taints); !slices.Equal(got, tc.taints) {
		t.Errorf("taints: got %v, want %v", got, tc.taints)
	}
	if tc.record != "" && after.Annotations[RecordAnnotation] != tc.record {
		t.Errorf("record: got %s, want %s", after.Annotations[RecordAnnotation], tc.record)
	}
	if got := markersOf(after); !slices.Equal(got, tc.markers) {
		t.Errorf("markers: got %v, want %v", got, tc.markers)
	}
	if len(d.Changes) != len(tc.changes) {
		t.Errorf("changes: got %+v, want %v", d.Changes, tc.changes)
	}
	for _, c := range d.Changes {
		if tc.changes[c.Taint] != c.Action {
			t.Errorf("change of %s: got %s, want %s", c.Taint, c.Action, tc.changes[c.Taint])
		}
		if uid, named := tc.by[c.Taint]; named && (len(c.Rules) == 0 || c.Rules[0] != uid) {
			t.Errorf("change of %s on account of %v, want %s first", c.Taint, c.Rules, uid)
		}
	}
	if tc.check != nil {
		if fault := tc.check(after); fault != "" {
			t.Error(fault)
		}
	}
	tc.seen.Now = noon.Add(time.Hour)
	if again := Decide(after, compileAll(tc.rules...), tc.seen); !again.Empty() || len(again.Changes) > 0 {
		t.Errorf("a second look wants to change more: %+v", again)
	}
}

func unrecorded(n *corev1.Node) string {
	if record, there := n.Annotations[RecordAnnotation]; there {
		return "there is still a record: " + record
	}
	return ""
}

func markersOf(n *corev1.Node) []string {
	var keys []string
	for key := range n.Annotations {
		if strings.HasPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestFulfilled(t *testing.T) {
	type requirement = readinessv1alpha1.ConditionRequirement
	a, b := requirement{Type: "A", RequiredStatus: "True"}, requirement{Type: "B", RequiredStatus: "False"}
	for _, tc := range []struct {
		name     string
		requires []requirement
		anyOf    bool
		has      []edit[corev1.Node]
		want     bool
	}{
		{name: "allOf with all as required", requires: []requirement{a, b}, has: []edit[corev1.Node]{has("A", "True"), has("B", "False")}, want: true},
		{name: "allOf with one not as required", requires: []requirement{a, b}, has: []edit[corev1.Node]{has("A", "True"), has("B", "True")}},
		{name: "allOf with one missing", requires: []requirement{a, b}, has: []edit[corev1.Node]{has("A", "True")}},
		{name: "anyOf with one as required", requires: []requirement{a, b}, anyOf: true, has: []edit[corev1.Node]{has("A", "False"), has("B", "False")}, want: true},
		{name: "anyOf with none as required", requires: []requirement{a, b}, anyOf: true, has: []edit[corev1.Node]{has("A", "False")}},
		{name: "Unknown is not True", requires: []requirement{a}, has: []edit[corev1.Node]{has("A", "Unknown")}},
		{name: "a missing condition is Unknown", requires: []requirement{{Type: "A", RequiredStatus: "Unknown"}}, want: true},
		{name: "a missing condition has the default", requires: []requirement{{Type: "A", RequiredStatus: "True", DefaultStatus: "True"}}, want: true},
		{name: "the default does not replace what is there", requires: []requirement{{Type: "A", RequiredStatus: "True", DefaultStatus: "True"}}, has: []edit[corev1.Node]{has("A", "Unknown")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &Rule{Requirements: tc.requires, AnyOf: tc.anyOf}
			if got := r.Fulfilled(node(tc.has...), Seen{}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
