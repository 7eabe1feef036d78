package nodewriter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change is what to write to a node's object.
type Change struct {
	// Taints is the whole list that the node should have; it counts only with TaintsChanged.
	Taints        []corev1.Taint
	TaintsChanged bool
	// Annotations to set, or with a nil value to remove. Only keys that nobody else writes.
	Annotations map[string]*string
}

// Empty reports whether there is nothing to write.
func (c Change) Empty() bool { return !c.TaintsChanged && len(c.Annotations) == 0 }

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

const (
	annotationsPath = "/metadata/annotations"
	taintsPath      = "/spec/taints"
)

// buildPatch turns a change into a JSON patch that applies only to the node it was decided from. A test with null holds
// when the member is absent, which is how the API server shows an empty list or map.
func buildPatch(node *corev1.Node, change Change) ([]byte, error) {
	var ops patch
	ops.test("/metadata/uid", string(node.UID))
	if len(node.Spec.Taints) == 0 {
		ops.test(taintsPath, nil)
	} else {
		ops.test(taintsPath, node.Spec.Taints)
	}

	if len(node.Annotations) == 0 {
		if fresh := annotationsToAdd(change.Annotations); len(fresh) > 0 {
			ops.test(annotationsPath, nil)
			ops.add(annotationsPath, fresh)
		}
	} else {
		for _, key := range slices.Sorted(maps.Keys(change.Annotations)) {
			path := annotationsPath + "/" + escape(key)
			had, has := node.Annotations[key]
			if has {
				ops.test(path, had)
			} else {
				ops.test(path, nil)
			}
			switch value := change.Annotations[key]; {
			case value != nil:
				ops.add(path, *value)
			case has:
				ops.remove(path)
			}
		}
	}

	switch {
	case !change.TaintsChanged:
	case len(change.Taints) > 0:
		ops.add(taintsPath, change.Taints)
	case len(node.Spec.Taints) > 0:
		ops.remove(taintsPath)
	}
	if ops.err != nil {
		return nil, fmt.Errorf("build patch of node %s: %w", node.Name, ops.err)
	}
	return json.Marshal(ops.list)
}

func annotationsToAdd(changes map[string]*string) map[string]string {
	fresh := map[string]string{}
	for key, value := range changes {
		if value != nil {
			fresh[key] = *value
		}
	}
	return fresh
}

// patch collects operations, and the first fault.
type patch struct {
	list []operation
	err  error
}

func (p *patch) test(path string, value any) { p.append("test", path, value) }
func (p *patch) add(path string, value any)  { p.append("add", path, value) }
func (p *patch) remove(path string)          { p.list = append(p.list, operation{Op: "remove", Path: path}) }

func (p *patch) append(op, path string, value any) {
	encoded, err := json.Marshal(value)
	if err != nil && p.err == nil {
		p.err = err
	}
	p.list = append(p.list, operation{Op: op, Path: path, Value: encoded})
}

// escape makes a key a token of a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// unknownPatch is a strategic merge patch that sets conditions to Unknown on exactly the version of the node that was
// read. It changes only conditions that the node has: made anew they would belong to us, and stay when their reporter
// withdraws them. nil means that there is nothing to change.
func unknownPatch(node *corev1.Node, types []string, reason, message string, now time.Time) ([]byte, error) {
	type condition struct {
		Type               corev1.NodeConditionType `json:"type"`
		Status             corev1.ConditionStatus   `json:"status"`
		Reason             string                   `json:"reason"`
		Message            string                   `json:"message"`
		LastTransitionTime *metav1.Time             `json:"lastTransitionTime,omitempty"`
	}
	var conditions []condition
	for _, c := range node.Status.Conditions {
		if !slices.Contains(types, string(c.Type)) || isUnknown(c, reason) {
			continue
		}
		unknown := condition{Type: c.Type, Status: corev1.ConditionUnknown, Reason: reason, Message: message}
		if c.Status != corev1.ConditionUnknown {
			unknown.LastTransitionTime = &metav1.Time{Time: now}
		}
		conditions = append(conditions, unknown)
	}
	if len(conditions) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
}

func isUnknown(c corev1.NodeCondition, reason string) bool {
	return c.Status == corev1.ConditionUnknown && c.Reason == reason
}
