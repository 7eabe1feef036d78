package tolerations

import (
	"math"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"pgregory.net/rapid"
)

func TestStaying(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: "NoExecute"} }
	tolerates := func(key string, seconds ...int64) corev1.Toleration {
		out := corev1.Toleration{Key: key, Operator: "Exists"}
		if len(seconds) > 0 {
			out.TolerationSeconds = &seconds[0]
		}
		return out
	}
	forever := Stay{Forever: true}
	for _, tc := range []struct {
		name        string
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		want        Stay
	}{
		{"no taint evicts nobody", nil, nil, forever},
		{"NoSchedule evicts nobody", nil, []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}, forever},
		{"a taint that is not tolerated evicts at once", nil, []corev1.Taint{taint("a")}, Stay{For: taint("a")}},
		{"one of two that is not tolerated evicts at once", []corev1.Toleration{tolerates("a")}, []corev1.Taint{taint("a"), taint("b")}, Stay{For: taint("b")}},
		{"tolerated without a time is tolerated for ever", []corev1.Toleration{tolerates("a")}, []corev1.Taint{taint("a")}, forever},
		{"tolerated for a time", []corev1.Toleration{tolerates("a", 300)}, []corev1.Taint{taint("a")}, Stay{After: 5 * time.Minute, For: taint("a")}},
		{"the shortest time counts", []corev1.Toleration{tolerates("a", 300), tolerates("b", 30)}, []corev1.Taint{taint("a"), taint("b")}, Stay{After: 30 * time.Second, For: taint("b")}},
		{"one for ever does not lengthen another", []corev1.Toleration{tolerates("a"), tolerates("b", 30)}, []corev1.Taint{taint("a"), taint("b")}, Stay{After: 30 * time.Second, For: taint("b")}},
		{"the first toleration that matches counts, not the longest", []corev1.Toleration{tolerates("a", 10), tolerates("")}, []corev1.Taint{taint("a")}, Stay{After: 10 * time.Second, For: taint("a")}},
		{"zero is at once", []corev1.Toleration{tolerates("a", 0)}, []corev1.Taint{taint("a")}, Stay{For: taint("a")}},
		{"less than zero is at once", []corev1.Toleration{tolerates("a", -5)}, []corev1.Taint{taint("a")}, Stay{For: taint("a")}},
		{"more than a duration can hold", []corev1.Toleration{tolerates("a", math.MaxInt64)}, []corev1.Taint{taint("a")}, Stay{After: time.Duration(math.MaxInt64).Truncate(time.Second), For: taint("a")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Staying(tc.tolerations, tc.taints, WithComparison); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestStaysAsKubernetesSays holds Staying against what it must be, said another way: at once if Kubernetes finds an
// untolerated NoExecute taint, for ever if every one is tolerated without a time, else no longer than any that is used.
func TestStaysAsKubernetesSays(t *testing.T) {
	quiet := logr.Discard()
	noExecute := func(taint *corev1.Taint) bool { return taint.Effect == corev1.TaintEffectNoExecute }
	rapid.Check(t, func(t *rapid.T) {
		taints := rapid.SliceOfN(rapid.Custom(drawTaint), 0, 4).Draw(t, "taints")
		tolerations := rapid.SliceOfN(rapid.Custom(drawToleration), 0, 4).Draw(t, "tolerations")
		gate := rapid.Bool().Draw(t, "gate")
		got := Staying(tolerations, taints, Comparison(gate))

		if taint, evicts := corev1helpers.FindMatchingUntoleratedTaint(quiet, taints, tolerations, noExecute, gate); evicts {
			if got != (Stay{For: taint}) {
				t.Fatalf("got %+v, want at once for %v", got, taint)
			}
			return
		}
		bounded := false
		for _, taint := range taints {
			if !noExecute(&taint) {
				continue
			}
			for _, toleration := range tolerations {
				if !toleration.ToleratesTaint(quiet, &taint, gate) {
					continue
				}
				if s := toleration.TolerationSeconds; s != nil {
					bounded = true
					if got.Forever || got.After.Seconds() > float64(max(*s, 0)) {
						t.Fatalf("got %+v, yet taint %v is tolerated for %d s", got, taint, *s)
					}
				}
				break
			}
		}
		if got.Forever == bounded {
			t.Fatalf("got %+v, bounded %v", got, bounded)
		}
	})
}
