package taints

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// TestEditsOpenNoWindow: a node that is held, and that fulfils no version of a rule, is held by every version of it: whatever
// of its conditions, waits, ages, bound and taint is edited, in any order and at any time, with restarts in between.
func TestEditsOpenNoWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := func(name string) *metav1.Duration {
			if seconds := rapid.IntRange(0, 60).Draw(t, name); seconds > 0 {
				return &metav1.Duration{Duration: time.Duration(seconds) * time.Second}
			}
			return nil
		}
		requirement := func() readinessv1alpha1.ConditionRequirement {
			r := readinessv1alpha1.ConditionRequirement{
				Type:           rapid.SampledFrom([]string{"False", "Unknown", "missing"}).Draw(t, "type"), // which is how each is
				RequiredStatus: corev1.ConditionTrue, MaxAge: short("maxAge"),
			}
			if rapid.Bool().Draw(t, "waits") {
				r.For = &readinessv1alpha1.Hold{Adding: short("adding"), Removing: short("removing")}
			}
			return r
		}
		n := node(has("False", "False"), has("Unknown", "Unknown"))
		r := rule(uidA, "network", needs("False", "True"))
		n = carryOut(n, Decide(n, compileAll(r), Seen{}))
		var bounds Bounds
		var history History
		now := noon
		t.Repeat(map[string]func(*rapid.T){
			"conditions": func(*rapid.T) {
				r.Spec.Conditions = []readinessv1alpha1.ConditionRequirement{requirement()}
				if also := requirement(); also.Type != r.Spec.Conditions[0].Type {
					r.Spec.Conditions = append(r.Spec.Conditions, also)
				}
			},
			"policy": func(t *rapid.T) {
				r.Spec.ConditionPolicy = rapid.SampledFrom([]readinessv1alpha1.ConditionPolicy{"", readinessv1alpha1.ConditionPolicyAnyOf}).Draw(t, "policy")
			},
			"bound": func(t *rapid.T) {
				r.Spec.MaxTainted = nil
				if bound := rapid.IntRange(-1, 1).Draw(t, "bound"); bound >= 0 {
					r.Spec.MaxTainted = new(intstr.FromInt(bound))
				}
			},
			"taint": func(t *rapid.T) {
				r.Spec.Taint.Key = rapid.SampledFrom([]string{networkKey, "readiness.example.com/other"}).Draw(t, "key")
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "seconds")) * time.Second)
			},
			"restart": func(*rapid.T) { bounds, history = Bounds{}, History{} },
			"": func(t *rapid.T) {
				rules := compileAll(r)
				bounds.Rebuild(rules, []*corev1.Node{n})
				history = history.Observe(n, rules, Agent{}, now)
				decision := Decide(n, rules, Seen{Now: now, History: history, MayHold: func(r *Rule) bool { return bounds.MayHold(r.UID, n.Name) }})
				n = carryOut(n, decision)
				bounds.Settle(n, rules, decision.Spared)
				if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != r.Spec.Taint.Key {
					t.Fatalf("taints %v, want %s alone", taintStrings(n.Spec.Taints), r.Spec.Taint.Key)
				}
			},
		})
	})
}
