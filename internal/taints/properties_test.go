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

// The generated world is small, so that rules collide: four keys, three effects, three condition types, two pools. Nodes
// have taints that no rule can own, too, and records may claim them.
var (
	someKey    = rapid.SampledFrom([]string{"r.example.com/a", "r.example.com/b", "r.example.com/c", "r.example.com/d"})
	anyKey     = rapid.OneOf(someKey, rapid.SampledFrom(unownable))
	someEffect = rapid.SampledFrom([]corev1.TaintEffect{"NoSchedule", "PreferNoSchedule", "NoExecute"})
	someType   = rapid.SampledFrom([]string{"A", "B", "C"})
	someStatus = rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"})
	unownable  = []string{"dedicated", "node.kubernetes.io/not-ready"}
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
	r.Spec.AllowEviction = rapid.Bool().Draw(t, "eviction")
	for range rapid.IntRange(0, 2).Draw(t, "more taints") {
		also(someKey.Draw(t, "key") + "=z:" + string(someEffect.Draw(t, "effect")))(r)
	}
	switch rapid.IntRange(0, 5).Draw(t, "beyond upstream") {
	case 0:
		atMost("1")(r)
	case 1:
		waits(time.Minute, time.Minute)(r)
	case 2:
		ages(time.Minute)(r)
	case 3:
		object(rapid.SampledFrom([]string{"ready", "unready"}).Draw(t, "object"))(r)
	}
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		dryRun(r)
	case 1:
		bootstrapOnly(r)
	case 2:
		r.DeletionTimestamp = &metav1.Time{Time: noon}
	case 3:
		unparsable(r)
	case 4:
		suspended(r)
	case 5:
		regates(r)
	}
	return r
}

// drawSeen gives what was seen of a node: it was looked at some time ago, with other conditions.
func drawSeen(t *rapid.T, n *corev1.Node, rules *Rules) Seen {
	full := map[types.UID]bool{}
	for _, rule := range rules.All() {
		full[rule.UID] = rapid.Bool().Draw(t, "at its bound")
	}
	seen := Seen{
		Now:     noon,
		MayHold: func(r *Rule) bool { return !full[r.UID] },
		Object: func(_ *corev1.Node, required readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
			if required.Name == "ready" {
				return corev1.ConditionTrue, ""
			}
			return corev1.ConditionFalse, "not ready"
		},
	}
	if rapid.Bool().Draw(t, "looked at before") {
		before := n.DeepCopy()
		for i := range before.Status.Conditions {
			before.Status.Conditions[i].Status = someStatus.Draw(t, "status before")
		}
		before.Status.NodeInfo.BootID = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "boot before")
		ago := time.Duration(rapid.IntRange(0, 120).Draw(t, "ago")) * time.Second
		seen.History = seen.History.Observe(before, rules, Agent{}, noon.Add(-ago))
	}
	seen.History = seen.History.Observe(n, rules, Agent{}, noon)
	return seen
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
		taint := corev1.Taint{Key: anyKey.Draw(t, "key"), Effect: someEffect.Draw(t, "effect"), Value: "z"}
		if !seen[idOf(taint)] {
			seen[idOf(taint)] = true
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
	}
	if n.Annotations == nil {
		return n
	}
	for range rapid.IntRange(0, 3).Draw(t, "owned") {
		owns(anyKey.Draw(t, "key"), someEffect.Draw(t, "effect"), ruleUID(rapid.IntRange(0, 6).Draw(t, "owner")))(n)
	}
	n.Status.NodeInfo.BootID = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "boot")
	if rapid.Bool().Draw(t, "marked") {
		i := rapid.IntRange(0, 6).Draw(t, "passed")
		key := rapid.SampledFrom([]string{string(ruleUID(i)), fmt.Sprintf("rule-%d", i)}).Draw(t, "marker")
		n.Annotations[readinessv1alpha1.BootstrapMarkerPrefix+key] = rapid.SampledFrom([]string{"{}", `{"boot-id":"1"}`, "true"}).Draw(t, "value")
	}
	if rapid.Bool().Draw(t, "judged") {
		judged(ruleUID(rapid.IntRange(0, 6).Draw(t, "by")), ruleUID(rapid.IntRange(0, 6).Draw(t, "and by")))(n)
	}
	return n
}

func TestDecideConvergesInOneWriteFromAnyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), compileAll(drawRules(t)...)
		seen := drawSeen(t, n, rules)
		decision := Decide(n, rules, seen)
		after := carryOut(n, decision)
		seen.History = seen.History.Observe(after, rules, Agent{}, noon)
		if again := Decide(after, rules, seen); !again.Empty() || len(again.Changes) != 0 {
			t.Fatalf("not settled: %+v", again)
		}
		for _, rule := range rules.All() {
			if rule.Frozen || !rule.Selects(after) {
				continue
			}
			if rule.BootstrapOnly && rule.Fulfilled(n, seen) && !rule.Completed(after) {
				t.Fatalf("%s is fulfilled and not marked", rule.Name)
			}
			holds := !rule.Completed(after) && !rule.Fulfilled(after, seen) && !slices.Contains(decision.Spared, rule.UID)
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
			if slices.Contains(unownable, id.Key) {
				t.Fatalf("%s counts as ours", id)
			}
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
		after := carryOut(n, Decide(n, rules, drawSeen(t, n, rules)))
		if before, after := foreign(n), foreign(after); !slices.EqualFunc(before, after, func(a, b corev1.Taint) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("foreign taints changed: %v -> %v", before, after)
		}
		for key := range n.Annotations {
			if _, marker := markedRule(key); key == RecordAnnotation || key == JudgedAnnotation || marker || movedMarker(key, rules) {
				continue
			}
			if _, there := after.Annotations[key]; !there {
				t.Fatalf("annotation %s is gone", key)
			}
		}
	})
}

// movedMarker reports whether a marker is keyed by the name of a rule that moves it to its UID.
func movedMarker(key string, rules *Rules) bool {
	return slices.ContainsFunc(rules.All(), func(r *Rule) bool { return r.BootstrapOnly && !r.Frozen && key == r.oldMarkerKey })
}

func TestDecideFreezesWhatFrozenRulesOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), compileAll(drawRules(t)...)
		after := carryOut(n, Decide(n, rules, drawSeen(t, n, rules)))
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
				r.Spec.AllowEviction = rapid.Bool().Draw(t, "eviction")
				also(someKey.Draw(t, "key") + "=z:" + string(someEffect.Draw(t, "effect")))(r)
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

// Waiting delays and never decides: whatever was seen, and however often the controller was restarted meanwhile, once
// nothing changes any more the node comes to be as without it, by the times at which the controller asks to look again.
func TestWaitingOnlyDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var slow, fast []*apiRule
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			r := rule(ruleUID(i), fmt.Sprintf("rule-%d", i), taintKey(someKey.Draw(t, "key")), needs(someType.Draw(t, "type"), someStatus.Draw(t, "required")))
			fast = append(fast, r.DeepCopy())
			seconds := rapid.IntRange(0, 90)
			waits(time.Duration(seconds.Draw(t, "adding"))*time.Second, time.Duration(seconds.Draw(t, "removing"))*time.Second)(r)
			slow = append(slow, r)
		}
		w := &watched{node: node(has("A", "True"), has("B", "True"), has("C", "True")), rules: compileAll(slow...), now: noon}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			w.node = w.node.DeepCopy()
			w.node.Status.Conditions[rapid.IntRange(0, 2).Draw(t, "condition")].Status = someStatus.Draw(t, "status")
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				restart(w)
			}
			w.look()
		}
		for looks := 0; ; looks++ {
			d := w.look()
			if d.Due.IsZero() {
				break
			}
			if looks > 8 || !d.Due.After(w.now) {
				t.Fatalf("at %s it wants to look again at %s, after %d looks", w.now, d.Due, looks)
			}
			w.now = d.Due
		}
		want := node()
		want.Status.Conditions = w.node.Status.Conditions
		want = carryOut(want, Decide(want, compileAll(fast...), Seen{Now: noon}))
		sorted := func(n *corev1.Node) []string { s := taintStrings(n.Spec.Taints); slices.Sort(s); return s }
		if got, want := sorted(w.node), sorted(want); !slices.Equal(got, want) {
			t.Fatalf("got %v, without waiting %v", got, want)
		}
	})
}

// A reporter that gives signs of life in time is never too old, and one that does not is, however often the controller is
// restarted: the kubelet of the same node shows that time passes, by a clock that may be hours slow.
func TestAgeIsThatOfTheLastSignOfLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 30 * time.Second
		slow := time.Duration(rapid.SampledFrom([]int{0, 1, 7}).Draw(t, "hours slow")) * time.Hour
		w := &watched{node: node(), rules: compileAll(rule(uidA, "network", ages(limit))), now: noon.Truncate(time.Second)}
		w.beats("True", w.now.Add(-slow))
		beat := w.now
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "beats") {
				w.beats("True", w.now.Add(-slow))
				beat = w.now
			}
			w.node = w.node.DeepCopy()
			w.node.Status.Conditions = append(w.node.Status.Conditions[:1],
				corev1.NodeCondition{Type: "Ready", Status: "True", LastHeartbeatTime: metav1.Time{Time: w.now.Add(-slow)}})
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				restart(w)
			}
			if w.look(); w.held() != (w.now.Sub(beat) > limit) {
				t.Fatalf("%s after the last heartbeat: held %v", w.now.Sub(beat), w.held())
			}
		}
	})
}

func TestDecideDoesNotDependOnTheOrderOfRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rules := drawNode(t), drawRules(t)
		shuffled := rapid.Permutation(rules).Draw(t, "shuffled")
		seen := drawSeen(t, n, compileAll(rules...))
		a, b := Decide(n, compileAll(rules...), seen), Decide(n, compileAll(shuffled...), seen)
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
