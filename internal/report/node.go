package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

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

// conditionsSay reports whether a node's conditions say what is wanted; times do not matter, nor do other types.
func conditionsSay(there []kubeclient.NodeCondition, wanted []health.Condition) bool {
	for _, w := range wanted {
		c, ok := find(there, w.Type)
		if !ok || c.Status != string(w.Status) || c.Reason != w.Reason || c.Message != health.Normalise(w.Message) {
			return false
		}
	}
	return true
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

// NodeStatus is the body that applies all of our conditions to a node. A type that we applied before and that is not
// among them is removed by the API server.
func NodeStatus(name string, uid types.UID, conditions []kubeclient.NodeCondition) ([]byte, error) {
	body, err := json.Marshal(applyBody[nodeStatus]{
		APIVersion: "v1", Kind: "Node",
		Metadata: applyMetadata{Name: name, UID: uid},
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
	Status     Status        `json:"status"`
}

// applyMetadata names an object. The UID makes the API server refuse when another of that name stands in its place; see
// kubeclient.IsAnotherObject.
type applyMetadata struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

type nodeStatus struct {
	Conditions []kubeclient.NodeCondition `json:"conditions,omitempty"`
}
