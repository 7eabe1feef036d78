package tolerations

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"pgregory.net/rapid"
)

func TestTolerates(t *testing.T) {
	network := corev1.Taint{Key: "r.example.com/network", Value: "5", Effect: "NoSchedule"}
	for _, tc := range []struct {
		name       string
		toleration corev1.Toleration
		taint      corev1.Taint
		want       bool // with Lt and Gt
		wantOff    bool // without them
	}{
		{"nothing but Exists tolerates everything", corev1.Toleration{Operator: "Exists"}, network, true, true},
		{"an empty toleration is Equal to an empty value, whatever the key", corev1.Toleration{}, corev1.Taint{Key: "a", Effect: "NoExecute"}, true, true},
		{"an empty toleration does not match a value", corev1.Toleration{}, network, false, false},
		{"no operator is Equal", corev1.Toleration{Key: network.Key, Value: "5"}, network, true, true},
		{"Equal to another value", corev1.Toleration{Key: network.Key, Operator: "Equal", Value: "6"}, network, false, false},
		{"Exists of another key", corev1.Toleration{Key: "other", Operator: "Exists"}, network, false, false},
		{"Exists with another effect", corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}, network, false, false},
		{"Exists with the same effect", corev1.Toleration{Operator: "Exists", Effect: "NoSchedule"}, network, true, true},
		{"Gt matches a taint with a greater value", corev1.Toleration{Operator: "Gt", Value: "4"}, network, true, false},
		{"Gt does not match an equal value", corev1.Toleration{Operator: "Gt", Value: "5"}, network, false, false},
		{"Lt matches a taint with a smaller value", corev1.Toleration{Operator: "Lt", Value: "6"}, network, true, false},
		{"Lt does not match an equal value", corev1.Toleration{Operator: "Lt", Value: "5"}, network, false, false},
		{"Lt across zero", corev1.Toleration{Operator: "Lt", Value: "1"}, corev1.Taint{Key: "a", Value: "-1"}, true, false},
		{"the greatest number", corev1.Toleration{Operator: "Lt", Value: "9223372036854775807"}, network, true, false},
		{"a number of more than 64 bits", corev1.Toleration{Operator: "Lt", Value: "9223372036854775808"}, network, false, false},
		{"a leading zero", corev1.Toleration{Operator: "Lt", Value: "06"}, network, false, false},
		{"a plus", corev1.Toleration{Operator: "Lt", Value: "+6"}, network, false, false},
		{"minus zero", corev1.Toleration{Operator: "Lt", Value: "-0"}, corev1.Taint{Key: "a", Value: "-1"}, false, false},
		{"a fraction", corev1.Toleration{Operator: "Lt", Value: "6.0"}, network, false, false},
		{"a taint with no number", corev1.Toleration{Operator: "Gt", Value: "1"}, corev1.Taint{Key: "a", Value: "pending"}, false, false},
		{"a taint without a value", corev1.Toleration{Operator: "Gt", Value: "-1"}, corev1.Taint{Key: "a"}, false, false},
		{"an operator that nobody knows", corev1.Toleration{Operator: "Near", Value: "5"}, network, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Tolerates(tc.toleration, tc.taint, WithComparison); got != tc.want {
				t.Errorf("with Lt and Gt: %v", got)
			}
			if got := Tolerates(tc.toleration, tc.taint, WithoutComparison); got != tc.wantOff {
				t.Errorf("without Lt and Gt: %v", got)
			}
		})
	}
}

// The values that make a difference: none, words, and numbers in and out of their canonical form and range.
var (
	keys    = rapid.SampledFrom([]string{"", "a", "b", "r.example.com/network"})
	effects = rapid.SampledFrom([]corev1.TaintEffect{"", "NoSchedule", "PreferNoSchedule", "NoExecute"})
	values  = rapid.OneOf(
		rapid.SampledFrom([]string{"", "x", "0", "-0", "+1", "01", "1", "2", "-1", "1.5", " 1", "1e3", "9223372036854775807", "-9223372036854775808", "9223372036854775808"}),
		rapid.StringMatching(`-?[0-9]{1,20}`),
	)
	operators = rapid.SampledFrom([]corev1.TolerationOperator{"", "Equal", "Exists", "Lt", "Gt", "Near"})
)

func drawTaint(t *rapid.T) corev1.Taint {
	return corev1.Taint{Key: keys.Draw(t, "key"), Value: values.Draw(t, "value"), Effect: effects.Draw(t, "effect")}
}

func drawToleration(t *rapid.T) corev1.Toleration {
	out := corev1.Toleration{Key: keys.Draw(t, "key"), Value: values.Draw(t, "value"), Effect: effects.Draw(t, "effect"), Operator: operators.Draw(t, "operator")}
	if rapid.Bool().Draw(t, "bounded") {
		out.TolerationSeconds = new(rapid.Int64().Draw(t, "seconds"))
	}
	return out
}

// TestMatchesAsKubernetesDoes compares with the functions that the scheduler and the eviction controller call.
func TestMatchesAsKubernetesDoes(t *testing.T) {
	quiet := logr.Discard() // it would log every value that is no number
	rapid.Check(t, func(t *rapid.T) {
		taints := rapid.SliceOfN(rapid.Custom(drawTaint), 0, 4).Draw(t, "taints")
		tolerations := rapid.SliceOfN(rapid.Custom(drawToleration), 0, 4).Draw(t, "tolerations")
		gate := rapid.Bool().Draw(t, "gate")
		for i := range taints {
			want := corev1helpers.TolerationsTolerateTaint(quiet, tolerations, &taints[i], gate)
			if got := Any(tolerations, taints[i], Comparison(gate)); got != want {
				t.Fatalf("taint %+v, tolerations %+v: %v, Kubernetes says %v", taints[i], tolerations, got, want)
			}
		}
		wantTaint, want := corev1helpers.FindMatchingUntoleratedTaint(quiet, taints, tolerations, blocksScheduling, gate)
		gotTaint, got := Unscheduled(tolerations, taints, Comparison(gate))
		if got != want || gotTaint != wantTaint {
			t.Fatalf("taints %+v, tolerations %+v: %v for %v, Kubernetes says %v for %v", taints, tolerations, got, gotTaint, want, wantTaint)
		}
	})
}

// blocksScheduling is the filter of the scheduler's plugin TaintToleration.
func blocksScheduling(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}
