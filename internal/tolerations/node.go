package tolerations

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Unscheduled returns the first taint that keeps pods with these tolerations from being scheduled to a node. Only
// NoSchedule and NoExecute do; a taint with PreferNoSchedule makes a node the last choice and no more.
func Unscheduled(tolerations []corev1.Toleration, taints []corev1.Taint, comparison Comparison) (corev1.Taint, bool) {
	for _, taint := range taints {
		blocks := taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
		if blocks && !Any(tolerations, taint, comparison) {
			return taint, true
		}
	}
	return corev1.Taint{}, false
}

// Stay says how long a running pod may stay on a node with NoExecute taints.
type Stay struct {
	// Forever is true when nothing evicts the pod. After is 0 then.
	Forever bool
	// After is the time from when the taint eviction controller sees the taints, not from their timeAdded.
	After time.Duration
	// On account of this taint the pod is evicted.
	For corev1.Taint
}

// Staying says how long pods with these tolerations stay on a node with these taints. A NoExecute taint that is not
// tolerated evicts at once; else the shortest tolerationSeconds counts, of the first toleration that matches each taint.
// PodDisruptionBudgets are not asked, by Kubernetes either.
func Staying(tolerations []corev1.Toleration, taints []corev1.Taint, comparison Comparison) Stay {
	stay := Stay{Forever: true}
	for _, taint := range taints {
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		used, tolerated := First(tolerations, taint, comparison)
		switch {
		case !tolerated:
			return Stay{For: taint}
		case used.TolerationSeconds == nil: // for ever
		default:
			after := seconds(*used.TolerationSeconds)
			if stay.Forever || after < stay.After {
				stay = Stay{After: after, For: taint}
			}
		}
	}
	return stay
}

// seconds makes a duration of tolerationSeconds; 0 and less are at once, and what no duration can hold is its longest.
func seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}
