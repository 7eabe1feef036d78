package readiness

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/taints"
)

// told says how each action is told: the reason of its event, what was done, and the words.
var told = map[taints.Action]struct{ reason, action, says string }{
	taints.Added:   {"TaintAdded", "AddTaint", "added taint %s: held by %s"},
	taints.Removed: {"TaintRemoved", "RemoveTaint", "removed taint %s: released by %s"},
	taints.Adopted: {"TaintAdopted", "AdoptTaint", "adopted taint %s, which was there already: held by %s"},
}

// Events tells what was done to a node.
func Events(node *corev1.Node, changes []taints.Change, rules *taints.Rules, at time.Time) []events.Event {
	var out []events.Event
	for _, change := range changes {
		as := told[change.Action]
		out = append(out, events.Event{
			Regarding: NodeReference(node),
			Type:      corev1.EventTypeNormal,
			Reason:    as.reason,
			Action:    as.action,
			Note:      fmt.Sprintf(as.says, change.Taint, ruleNames(change.Rules, rules)),
			At:        at,
		})
	}
	return out
}

// NodeReference is how events refer to a node. kubectl describe looks for events by the node's UID.
func NodeReference(node *corev1.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

func ruleNames(uids []types.UID, rules *taints.Rules) string {
	var names []string
	for _, uid := range uids {
		if rule := rules.Get(uid); rule != nil {
			names = append(names, "rule "+rule.Name)
		} else {
			names = append(names, "a deleted rule")
		}
	}
	if len(names) == 0 {
		return "no rule"
	}
	return strings.Join(names, ", ")
}
