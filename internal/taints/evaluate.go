package taints

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Fulfilled reports whether the node is as the rule requires: its conditions, by conditionPolicy, and all objects. A
// condition with a minimum hold goes by what counts as of the last look in seen.History.
func (r *Rule) Fulfilled(node *corev1.Node, seen Seen) bool {
	if !r.conditionsMet(node, seen) {
		return false
	}
	for _, required := range r.Objects {
		if ready, _ := seen.object(node, required); ready != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

// Awaits reports whether it hangs on an object that nobody has looked at yet whether the node fulfils the rule. Such a rule
// leaves the node as it is.
func (r *Rule) Awaits(node *corev1.Node, seen Seen) bool {
	if len(r.Objects) == 0 || r.Completed(node) || !r.conditionsMet(node, seen) {
		return false
	}
	awaits := false
	for _, required := range r.Objects {
		switch ready, _ := seen.object(node, required); ready {
		case corev1.ConditionTrue:
		case "":
			awaits = true
		default:
			return false
		}
	}
	return awaits
}

func (r *Rule) conditionsMet(node *corev1.Node, seen Seen) bool {
	for _, required := range r.Requirements {
		if met := r.counts(node, required, seen); met == r.AnyOf {
			return met // anyOf is decided by the first that is met, allOf by the first that is not
		}
	}
	return !r.AnyOf || len(r.Requirements) == 0
}

// counts reports whether a requirement counts as met.
func (r *Rule) counts(node *corev1.Node, required readinessv1alpha1.ConditionRequirement, seen Seen) bool {
	if required.For != nil {
		if h, known := seen.History.holds[holdID{r.UID, required.Type}]; known {
			return h.counts
		}
	}
	return r.met(node, required, seen.History, seen.Now)
}

// metNow reports whether all conditions are as required at the moment, whatever still counts of before. A bootstrap is passed
// for good, so patience with a condition that has ceased lets a node go unheld, and not pass.
func (r *Rule) metNow(node *corev1.Node, seen Seen) bool {
	for _, required := range r.Requirements {
		if !r.met(node, required, seen.History, seen.Now) {
			return false
		}
	}
	return true
}

// met reports whether a requirement is met at the moment.
func (r *Rule) met(node *corev1.Node, required readinessv1alpha1.ConditionRequirement, history History, now time.Time) bool {
	return r.current(node, required, history, now).counts == required.RequiredStatus
}

// found is what there is of a required condition.
type found struct {
	// counts is the status that the rule goes by: that of the condition, else the default, else Unknown.
	counts corev1.ConditionStatus
	// shown is the status of the condition, and missing is true when there is none.
	shown   corev1.ConditionStatus
	missing bool
	// stale is true for a condition that counts as none, since it is too old or from before a reboot.
	stale bool
}

func (r *Rule) current(node *corev1.Node, required readinessv1alpha1.ConditionRequirement, history History, now time.Time) found {
	f := found{counts: corev1.ConditionUnknown, missing: true}
	if required.DefaultStatus != "" {
		f.counts = required.DefaultStatus
	}
	c := find(node, required.Type)
	if c == nil {
		return f
	}
	f.shown, f.missing = c.Status, false
	f.stale = required.MaxAge != nil && history.age(required.Type, now) > required.MaxAge.Duration ||
		r.Regate && history.outlived(required.Type)
	if !f.stale {
		f.counts = c.Status
	}
	return f
}

// Results shows each required condition beside what the node has.
func (r *Rule) Results(node *corev1.Node, seen Seen) []readinessv1alpha1.ConditionResult {
	results := make([]readinessv1alpha1.ConditionResult, 0, len(r.Requirements))
	for _, required := range r.Requirements {
		f := r.current(node, required, seen.History, seen.Now)
		result := readinessv1alpha1.ConditionResult{
			Type:           required.Type,
			CurrentStatus:  corev1.ConditionUnknown,
			RequiredStatus: required.RequiredStatus,
			DefaultStatus:  required.DefaultStatus,
			Missing:        f.missing,
			Stale:          f.stale,
			Pending:        r.counts(node, required, seen) != (f.counts == required.RequiredStatus),
		}
		if known(f.shown) {
			result.CurrentStatus = f.shown
		}
		results = append(results, result)
	}
	return results
}

// ObjectResults shows each required object.
func (r *Rule) ObjectResults(node *corev1.Node, seen Seen) []readinessv1alpha1.ObjectResult {
	results := make([]readinessv1alpha1.ObjectResult, 0, len(r.Objects))
	for _, required := range r.Objects {
		ready, message := seen.object(node, required)
		if !known(ready) {
			ready = corev1.ConditionUnknown
		}
		results = append(results, readinessv1alpha1.ObjectResult{Name: required.Name, Ready: ready, Message: message})
	}
	return results
}

// known reports whether a status is one of the three; reporters can write any text there, and some do.
func known(status corev1.ConditionStatus) bool {
	return status == corev1.ConditionTrue || status == corev1.ConditionFalse || status == corev1.ConditionUnknown
}
