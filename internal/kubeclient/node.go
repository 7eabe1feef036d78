package kubeclient

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what the agent reads of a Node. A whole one holds a list of images many times this size.
type Node struct {
	Name string
	UID  types.UID
	// ResourceVersion is that of the Node as it was read.
	ResourceVersion string
	Conditions      []NodeCondition
	// Owned are the types of the conditions that FieldManager applied last, sorted. The API server keeps them, so that
	// they are known after a restart too.
	Owned []string
	// Shared are those of the conditions there that a manager other than FieldManager wrote to, sorted. An apply that
	// leaves out a type of ours does not remove it while another manager owns a part of it.
	Shared []string
}

// NodeCondition has the fields of a condition of a Node under their names in the API.
type NodeCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	LastHeartbeatTime  metav1.Time `json:"lastHeartbeatTime,omitzero"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message"`
}

// Node reads a Node. Errors are those of the API, so that apierrors can tell them apart; so it is with every call here.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	raw, err := once(c.core.Get()).Resource("nodes").Name(name).Do(ctx).Raw()
	if err != nil {
		return Node{}, fmt.Errorf("get node %s: %w", name, err)
	}
	return decodeNode(raw)
}

func decodeNode(raw []byte) (Node, error) {
	var n struct {
		Metadata struct {
			Name            string         `json:"name"`
			UID             types.UID      `json:"uid"`
			ResourceVersion string         `json:"resourceVersion"`
			ManagedFields   []managedField `json:"managedFields"`
		} `json:"metadata"`
		Status struct {
			Conditions []NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return Node{}, fmt.Errorf("decode node: %w", err)
	}
	node := Node{
		Name: n.Metadata.Name, UID: n.Metadata.UID, ResourceVersion: n.Metadata.ResourceVersion, Conditions: n.Status.Conditions,
	}
	for _, m := range n.Metadata.ManagedFields {
		all := m.conditionTypes()
		switch {
		case m.Manager != FieldManager:
			node.Shared = append(node.Shared, all...)
		case m.Operation == metav1.ManagedFieldsOperationApply:
			node.Owned = append(node.Owned, all...)
		}
	}
	node.Owned, node.Shared = sortedOnce(node.Owned), sortedOnce(node.Shared)
	return node, nil
}

// managedField is an entry of metadata.managedFields as far as conditions go. An item of the list is named by its merge
// key, e.g. k:{"type":"Ready"}.
type managedField struct {
	Manager   string                            `json:"manager"`
	Operation metav1.ManagedFieldsOperationType `json:"operation"`
	Fields    struct {
		Status struct {
			Conditions map[string]json.RawMessage `json:"f:conditions"`
		} `json:"f:status"`
	} `json:"fieldsV1"`
}

func (m managedField) conditionTypes() []string {
	var all []string
	for key := range m.Fields.Status.Conditions {
		key, isItem := strings.CutPrefix(key, "k:")
		var item struct {
			Type string `json:"type"`
		}
		if isItem && json.Unmarshal([]byte(key), &item) == nil && item.Type != "" {
			all = append(all, item.Type)
		}
	}
	return all
}

func sortedOnce(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// ApplyNodeStatus applies body to the status of a Node, by force.
func (c *Client) ApplyNodeStatus(ctx context.Context, name string, body []byte, o ApplyOptions) error {
	if err := c.apply(ctx, c.core, "nodes", name, body, o); err != nil {
		return fmt.Errorf("apply conditions to node %s: %w", name, err)
	}
	return nil
}

// PatchNodeStatus changes the status of a Node by a JSON patch. One whose tests fail is refused; see IsOutdated.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := once(c.core.Patch(types.JSONPatchType)).Resource("nodes").Name(name).SubResource("status").
		Param("fieldManager", FieldManager).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch conditions of node %s: %w", name, err)
	}
	return nil
}
