package tolerations

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Comparison says whether the operators Lt and Gt match anything. They do where the API server has the feature gate
// TaintTolerationComparisonOperators, which is off by default up to Kubernetes 1.36.
type Comparison bool

// The two sides of the feature gate.
const (
	WithoutComparison Comparison = false
	WithComparison    Comparison = true
)

// Tolerates reports whether one toleration matches one taint: an empty effect matches every effect, an empty key every
// key, and the operator decides about the value. Operators that Kubernetes does not know match nothing.
func Tolerates(t corev1.Toleration, taint corev1.Taint, comparison Comparison) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		return comparison == WithComparison && compares(t, taint)
	}
	return false
}

// compares reports whether the taint's value is less, or greater, than the toleration's. Values that are no numbers match
// nothing.
func compares(t corev1.Toleration, taint corev1.Taint) bool {
	tolerated, ok := number(t.Value)
	if !ok {
		return false
	}
	tainted, ok := number(taint.Value)
	if !ok {
		return false
	}
	if t.Operator == corev1.TolerationOpLt {
		return tainted < tolerated
	}
	return tainted > tolerated
}

// number reads a signed decimal of 64 bits in its one canonical form: no leading zero, no plus, no minus zero.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// First returns the first of the tolerations that matches the taint. Order matters: of a NoExecute taint, the first match
// says for how long it is tolerated.
func First(tolerations []corev1.Toleration, taint corev1.Taint, comparison Comparison) (corev1.Toleration, bool) {
	for _, t := range tolerations {
		if Tolerates(t, taint, comparison) {
			return t, true
		}
	}
	return corev1.Toleration{}, false
}

// Any reports whether one of the tolerations matches the taint.
func Any(tolerations []corev1.Toleration, taint corev1.Taint, comparison Comparison) bool {
	_, ok := First(tolerations, taint, comparison)
	return ok
}
