package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// wish is what a node is to say.
type wish struct {
	// decided is written.
	decided []health.Condition
	// pending are types of which whatever stands there stays. A type that does not stand there is not made.
	pending []string
	// overdue : pending types were waited for long enough.
	overdue bool
}

// conditions are all of ours as they are written at now to a node that has others; copied says that some are there
// already and must not be older than what stands there.
func (w wish) conditions(there []kubeclient.NodeCondition, now time.Time) (all []kubeclient.NodeCondition, copied bool) {
	all = NodeConditions(there, w.decided, now)
	for _, name := range w.pending {
		if c, ok := find(there, name); ok {
			all, copied = append(all, w.kept(c, now)), true
		}
	}
	return all, copied
}

// kept is a condition that stays. What the controller said of a silent agent stays Unknown too, but once the wait is over
// it no longer says that the agent is silent: the controller would ask the agent to report again, and again.
func (w wish) kept(c kubeclient.NodeCondition, now time.Time) kubeclient.NodeCondition {
	if !w.overdue || !silenced(c) {
		return c
	}
	c.Reason, c.Message = health.ReasonPending, "the agent is alive, and has not come to a verdict yet"
	c.LastHeartbeatTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	return c
}

func silenced(c kubeclient.NodeCondition) bool { return c.Reason == fettlev1alpha1.ReasonAgentSilent }

// types are those of conditions, sorted and never nil.
func (w wish) types(there []kubeclient.NodeCondition) []string {
	all := conditionTypes(w.decided)
	for _, name := range w.pending {
		if _, ok := find(there, name); ok {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return append([]string{}, slices.Compact(all)...)
}

// met reports whether a node's conditions say what is wished, and how long a message alone may wait; 0: there is none.
func (w wish) met(there []kubeclient.NodeCondition, written messages, now time.Time) (met bool, wait time.Duration) {
	if w.overdue && slices.ContainsFunc(w.pending, func(name string) bool { c, ok := find(there, name); return ok && silenced(c) }) {
		return false, 0
	}
	met = true
	for _, d := range w.decided {
		c, ok := find(there, d.Type)
		switch {
		case !ok || c.Status != string(d.Status) || c.Reason != d.Reason:
			return false, 0
		case c.Message == health.Normalise(d.Message):
		default:
			left := written.wait(d.Type, now)
			met, wait = met && left > 0, soonest(wait, left)
		}
	}
	if !met {
		wait = 0
	}
	return met, wait
}

// messageEvery is how often at most a message is written that changes while status and reason stay, for each type.
const messageEvery = time.Minute

// messages is when the message of a condition was last written, by type.
type messages map[string]time.Time

func (m messages) wait(name string, now time.Time) time.Duration {
	at, ok := m[name]
	if !ok {
		return 0
	}
	return max(messageEvery-now.Sub(at), 0)
}

// wrote notes the messages that changed; of types that are gone nothing is kept.
func (m messages) wrote(before, after []kubeclient.NodeCondition, now time.Time) messages {
	next := messages{}
	for _, c := range after {
		old, ok := find(before, c.Type)
		at, known := m[c.Type]
		switch {
		case !ok || old.Message != c.Message:
			next[c.Type] = now
		case known:
			next[c.Type] = at
		}
	}
	return next
}

// NodeConditions are the wanted conditions as they are written at now to a node that has others. A condition that is
// there with the same status keeps its lastTransitionTime; lastHeartbeatTime is the time of this write.
func NodeConditions(there []kubeclient.NodeCondition, wanted []health.Condition, now time.Time) []kubeclient.NodeCondition {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	var all []kubeclient.NodeCondition
	for _, w := range wanted {
		c := kubeclient.NodeCondition{
			Type: w.Type, Status: string(w.Status), Reason: w.Reason, Message: health.Normalise(w.Message),
			LastHeartbeatTime: at, LastTransitionTime: at,
		}
		if old, ok := find(there, w.Type); ok && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
		all = append(all, c)
	}
	return all
}

func find(conditions []kubeclient.NodeCondition, name string) (kubeclient.NodeCondition, bool) {
	i := slices.IndexFunc(conditions, func(c kubeclient.NodeCondition) bool { return c.Type == name })
	if i < 0 {
		return kubeclient.NodeCondition{}, false
	}
	return conditions[i], true
}

func conditionTypes(wanted []health.Condition) []string {
	var all []string
	for _, w := range wanted {
		all = append(all, w.Type)
	}
	slices.Sort(all)
	return all
}

// Ours are the types of a node's conditions that agents published, sorted: those that our field manager owns, and those
// that only agents publish, whoever owns them now.
func Ours(node kubeclient.Node) []string {
	var all []string
	for _, c := range node.Conditions {
		if slices.Contains(node.Owned, c.Type) || strings.HasPrefix(c.Type, fettlev1alpha1.ConditionPrefix) {
			all = append(all, c.Type)
		}
	}
	slices.Sort(all)
	return all
}

// Leftovers are the types of ours that are not to be kept and that an apply without them would not remove, or not whole:
// somebody else, such as the controller that called us silent, owns a part of them.
func Leftovers(node kubeclient.Node, keep []string) []string {
	return slices.DeleteFunc(Ours(node), func(name string) bool {
		alone := slices.Contains(node.Owned, name) && !slices.Contains(node.Shared, name)
		return alone || slices.Contains(keep, name)
	})
}

// RemovePatch is the JSON patch that removes conditions of those types from the node as it was read, and from nobody
// else: an item that has moved since, or another node of the name, fails its tests.
func RemovePatch(node kubeclient.Node, names []string) ([]byte, error) {
	patch := []operation{{Op: "test", Path: "/metadata/uid", Value: string(node.UID)}}
	for i, c := range slices.Backward(node.Conditions) { // so that the indices of those to come stay
		if slices.Contains(names, c.Type) {
			item := fmt.Sprintf("/status/conditions/%d", i)
			patch = append(patch, operation{Op: "test", Path: item + "/type", Value: c.Type}, operation{Op: "remove", Path: item})
		}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the removal of conditions of node %s: %w", node.Name, err)
	}
	return body, nil
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// NodeStatus is the body that applies all of our conditions to a node. A type that we applied before and that is not
// among them is removed by the API server; without any we own nothing of the node any more.
func NodeStatus(name string, uid types.UID, conditions []kubeclient.NodeCondition) ([]byte, error) {
	return nodeStatusAt(name, uid, "", conditions)
}

// nodeStatusAt applies only if the node is still at that resourceVersion; empty: at any.
func nodeStatusAt(name string, uid types.UID, resourceVersion string, conditions []kubeclient.NodeCondition) ([]byte, error) {
	body, err := json.Marshal(applyBody[nodeStatus]{
		APIVersion: "v1", Kind: "Node",
		Metadata: applyMetadata{Name: name, UID: uid, ResourceVersion: resourceVersion},
		Status:   nodeStatus{Conditions: conditions},
	})
	if err != nil {
		return nil, fmt.Errorf("encode conditions of node %s: %w", name, err)
	}
	return body, nil
}

// applyBody is a server-side apply to the status of an object.
type applyBody[Status any] struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   applyMetadata `json:"metadata"`
	Status     Status        `json:"status,omitzero"`
}

// applyMetadata names an object. The UID makes the API server refuse when another of that name stands in its place; see
// kubeclient.IsAnotherObject.
type applyMetadata struct {
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

type nodeStatus struct {
	Conditions []kubeclient.NodeCondition `json:"conditions,omitempty"`
}
