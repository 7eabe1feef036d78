package taints

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// The generated world is small, so that rules collide: four keys, three effects, three condition types, two pools.
var (
	someKey    = rapid.SampledFrom([]string{"r.example.com/a", "r.example.com/b", "r.example.com/c", "dedicated"})
	someEffect = rapid.SampledFrom([]corev1.TaintEffect{"NoSchedule", "PreferNoSchedule", "NoExecute"})
	someType   = rapid.SampledFrom([]string{"A", "B", "C"})
	someStatus = rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"})
	somePool   = rapid.SampledFrom([]string{"workers", "control"})
)

func ruleUID(i int) types.UID { return types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)) }

func drawRules(t *rapid.T) []*apiRule {
	var rules []*apiRule
	for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
		rules = append(rules, drawRule(t, i))
	}
	return rules
}

func drawRule(t *rapid.T, i int) *apiRule {
	r := rule(ruleUID(i), fmt.Sprintf("rule-%d", i), pool(somePool.Draw(t, "pool")),
		taintKey(someKey.Draw(t, "key")), effect(someEffect.Draw(t, "effect")),
		needs(someType.Draw(t, "type"), someStatus.Draw(t, "required")))
	r.Spec.Taint.Value = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		dryRun(r)
	case 1:
		bootstrapOnly(r)
	case 2:
		r.DeletionTimestamp = &metav1.Time{Time: noon}
	case 3:
		unparsable(r)
	}
	return r
}

func drawNode(t *rapid.T) *corev1.Node {
	n := node()
	n.Labels["pool"] = somePool.Draw(t, "pool")
	if rapid.Bool().Draw(t, "bare") {
		n.Annotations = nil
	}
	for _, conditionType := range rapid.SliceOfNDistinct(someType, 0, 3, rapid.ID).Draw(t, "types") {
		has(conditionType, someStatus.Draw(t, "status"))(n)
	}
	seen := map[ID]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "taints") {
		taint := corev1.Taint{Key: someKey.Draw(t, "key"), Effect: someEffect.Draw(t, "effect"), Value: "z"}
		if !seen[idOf(taint)] {
			seen[idOf(taint)] = true
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
	}
	if n.Annotations == nil {
		return n
	}
	for range rapid.IntRange(0, 3).Draw(t, "owned") {
		owns(someKey.Draw(t, "key"), someEffect.Draw(t, "effect"), ruleUID(rapid.IntRange(0, 6).Draw(t, "owner")))(n)
	}
	if rapid.Bool().Draw(t, "marked") {
		n.Annotations[readinessv1alpha1.BootstrapMarkerPrefix+string(ruleUID(rapid.IntRange(0, 6).Draw(t, "passed")))] = "{}"
	}
	return n
}

func TestDecideConvergesInOneWriteFromAnyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), compileAll(drawRules(t)...)
		after := carryOut(n, Decide(n, rules, Seen{Now: noon}))
		if again := Decide(after, rules, Seen{Now: noon.Add(time.Minute)}); !again.Empty() || len(again.Changes) != 0 {
			t.Fatalf("not settled: %+v", again)
		}
		for _, rule := range rules.All() {
			if rule.Frozen || !rule.Selects(after) {
				continue
			}
			if rule.BootstrapOnly && rule.Fulfilled(n, Seen{}) && !rule.Completed(after) {
				t.Fatalf("%s is fulfilled and not marked", rule.Name)
			}
			holds := !rule.Completed(after) && !rule.Fulfilled(after, Seen{})
			if holds && !rule.Tainted(after) {
				t.Fatalf("%s is not fulfilled and its taint is absent", rule.Name)
			}
		}
	})
}

func TestDecideNeverTouchesForeignTaints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), compileAll(drawRules(t)...)
		ours := map[ID]bool{}
		for id := range ReadRecord(n) {
			ours[id] = true
		}
		for _, rule := range rules.All() {
			if !rule.Frozen && rule.Selects(n) && !rule.Completed(n) {
				for _, taint := range rule.Taints {
					ours[taint.ID] = true
				}
			}
		}
		foreign := func(n *corev1.Node) []corev1.Taint {
			return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(taint corev1.Taint) bool { return ours[idOf(taint)] })
		}
		after := carryOut(n, Decide(n, rules, Seen{Now: noon}))
		if before, after := foreign(n), foreign(after); !slices.EqualFunc(before, after, func(a, b corev1.Taint) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("foreign taints changed: %v -> %v", before, after)
		}
		for key := range n.Annotations {
			if _, marker := markedRule(key); key == RecordAnnotation || marker {
				continue
			}
			if _, there := after.Annotations[key]; !there {
				t.Fatalf("annotation %s is gone", key)
			}
		}
	})
}

func TestDecideFreezesWhatDryRunRulesOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), compileAll(drawRules(t)...)
		after := carryOut(n, Decide(n, rules, Seen{Now: noon}))
		for id, owners := range ReadRecord(n) {
			if len(frozenOwners(owners, rules)) == 0 {
				continue
			}
			is := func(taint corev1.Taint) bool { return idOf(taint) == id }
			if slices.ContainsFunc(n.Spec.Taints, is) && !slices.ContainsFunc(after.Spec.Taints, is) {
				t.Fatalf("%s is owned by a frozen rule and was removed", id)
			}
		}
	})
}

// A controller may see every change of conditions, labels and rules, or only the last; it may be killed after any write.
// Since a decision is one write, a crash is only a longer gap. The outcome is the same.
func TestDecideDependsOnWhatHoldsNotOnWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		continuous := func() *Rules {
			var rules []*apiRule
			for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
				r := rule(ruleUID(i), fmt.Sprintf("rule-%d", i), pool(somePool.Draw(t, "pool")), taintKey(someKey.Draw(t, "key")),
					effect(someEffect.Draw(t, "effect")), needs(someType.Draw(t, "type"), someStatus.Draw(t, "required")))
				rules = append(rules, r)
			}
			return compileAll(rules...)
		}
		eager, lazy := node(), node()
		var rules *Rules
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			rules = continuous()
			pool, conditions := somePool.Draw(t, "pool"), []corev1.NodeCondition(nil)
			for _, conditionType := range []corev1.NodeConditionType{"A", "B", "C"} {
				conditions = append(conditions, corev1.NodeCondition{Type: conditionType, Status: someStatus.Draw(t, "status")})
			}
			for _, n := range []*corev1.Node{eager, lazy} {
				n.Labels["pool"], n.Status.Conditions = pool, conditions
			}
			eager = carryOut(eager, Decide(eager, rules, Seen{Now: noon}))
			if rapid.Bool().Draw(t, "seen") {
				lazy = carryOut(lazy, Decide(lazy, rules, Seen{Now: noon}))
			}
		}
		lazy = carryOut(lazy, Decide(lazy, rules, Seen{Now: noon}))
		sorted := func(n *corev1.Node) []string { s := taintStrings(n.Spec.Taints); slices.Sort(s); return s }
		if a, b := sorted(eager), sorted(lazy); !slices.Equal(a, b) {
			t.Fatalf("the one who saw everything has %v, the one who did not has %v", a, b)
		}
		if a, b := eager.Annotations[RecordAnnotation], lazy.Annotations[RecordAnnotation]; a != b {
			t.Fatalf("records differ: %s, %s", a, b)
		}
	})
}

func TestDecideDoesNotDependOnTheOrderOfRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), drawRules(t)
		shuffled := rapid.Permutation(rules).Draw(t, "shuffled")
		a, b := Decide(n, compileAll(rules...), Seen{Now: noon}), Decide(n, compileAll(shuffled...), Seen{Now: noon})
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func BenchmarkDecide20Rules(b *testing.B) {
	var rules []*apiRule
	for i := range 20 {
		rules = append(rules, rule(ruleUID(i), fmt.Sprintf("rule-%02d", i), taintKey(fmt.Sprintf("r.example.com/%d", i))))
	}
	n, set := node(has("example.com/Network", "True")), compileAll(rules...)
	b.ReportAllocs()
	for b.Loop() {
		if d := Decide(n, set, Seen{Now: noon}); !d.Empty() {
			b.Fatal("a fulfilled rule asked for something")
		}
	}
}
