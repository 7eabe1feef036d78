package taints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// AtBirth gives what a node is to be created with, so that no pod is placed on it before Decide has looked at it: the taints
// of the rules that ask for it, and the record of them. It does not ask whether the rules are fulfilled: what a node says of
// itself at its creation is not yet what its reporters say. Taints that the node brings are left for Decide to adopt.
//
// The admission policy in deploy/new-nodes does the same.
func AtBirth(node *corev1.Node, rules *Rules) Decision {
	next := Decision{Taints: slices.Clone(node.Spec.Taints)}
	record := ReadRecord(node)
	for _, rule := range rules.All() {
		if !rule.TaintNewNodes || rule.Frozen || !rule.Selects(node) {
			continue
		}
		for _, t := range rule.Taints {
			if slices.ContainsFunc(next.Taints, func(on corev1.Taint) bool { return idOf(on) == t.ID }) {
				continue
			}
			next.Taints = append(next.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
			next.TaintsChanged = true
			record[t.ID] = append(record[t.ID], rule.UID)
		}
	}
	if next.TaintsChanged {
		encoded := record.encode()
		next.Annotations = map[string]*string{RecordAnnotation: &encoded}
	}
	return next
}
