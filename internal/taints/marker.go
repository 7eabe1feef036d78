package taints

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// marker is the value of a bootstrap marker. Its form is that of the node readiness controller, which this one replaces,
// and which reads the rule's name alone.
type marker struct {
	RuleName string `json:"rule-name"`
	// BootID is of the boot in which the node passed, for rules that a node has to pass again after a reboot.
	BootID string `json:"boot-id,omitempty"`
}

func (m marker) encode() string {
	encoded, err := json.Marshal(m)
	if err != nil { // strings: cannot happen
		panic(err)
	}
	return string(encoded)
}

// MarkerKey is the Node annotation that records that this rule's bootstrap is done.
func (r *Rule) MarkerKey() string { return r.markerKey }

// marked gives the marker of a bootstrap-only rule on the node.
func (r *Rule) marked(node *corev1.Node) (m marker, there bool) {
	if !r.BootstrapOnly {
		return marker{}, false
	}
	if value, there := node.Annotations[r.markerKey]; there {
		return readMarker(value), true
	}
	_, there = node.Annotations[r.oldMarkerKey]
	return marker{}, there
}

// readMarker reads a marker's value. Whatever it is, the marker counts.
func readMarker(value string) (m marker) {
	_ = json.Unmarshal([]byte(value), &m)
	return m
}

// Completed reports whether the node passed this bootstrap-only rule before, and need not pass it again.
func (r *Rule) Completed(node *corev1.Node) bool {
	m, there := r.marked(node)
	return there && !r.rebooted(node, m)
}

// rebooted reports whether the node was rebooted since it passed, and has to pass again.
func (r *Rule) rebooted(node *corev1.Node, m marker) bool {
	boot := node.Status.NodeInfo.BootID
	return r.Regate && m.BootID != "" && boot != "" && boot != m.BootID
}

// rebooted reports whether the node was rebooted since it passed one of the rules that it has to pass again then.
func (s *Rules) rebooted(node *corev1.Node) bool {
	return slices.ContainsFunc(s.byName, func(r *Rule) bool {
		m, there := r.marked(node)
		return there && r.rebooted(node, m)
	})
}

// mark brings the marker of a bootstrap-only rule up to date. passed says that the node fulfils the rule now. A marker of
// before a reboot goes, and one that early versions keyed by the rule's name moves.
func (r *Rule) mark(node *corev1.Node, passed bool, set func(key string, value *string)) {
	was, _ := r.marked(node)
	_, keyed := node.Annotations[r.markerKey]
	if !passed && !r.Completed(node) {
		if keyed {
			set(r.markerKey, nil)
		}
		return
	}
	is := marker{RuleName: r.Name, BootID: was.BootID}
	if boot := node.Status.NodeInfo.BootID; r.Regate && boot != "" {
		is.BootID = boot
	}
	if encoded := is.encode(); !keyed || is.BootID != was.BootID {
		set(r.markerKey, &encoded)
	}
	if _, old := node.Annotations[r.oldMarkerKey]; old {
		set(r.oldMarkerKey, nil)
	}
}

// outlived reports whether a marker's rule is gone, or holds nodes continuously now: should it become bootstrap-only again,
// nodes have to pass it again.
func outlived(rule *Rule) bool { return rule == nil || !rule.Frozen && !rule.BootstrapOnly }

// markedRule returns the UID in the key of a bootstrap marker.
func markedRule(key string) (types.UID, bool) {
	uid, ok := strings.CutPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix)
	if !ok || len(uid) != 36 || strings.Count(uid, "-") != 4 {
		return "", false
	}
	return types.UID(uid), true
}
