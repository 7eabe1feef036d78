package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// newNodes answers the API server when a Node is being created.
type newNodes struct {
	cache client.Reader
}

// Handle never denies. What cannot be decided is allowed with a warning, and left to the reconciler.
func (n *newNodes) Handle(ctx context.Context, request admission.Request) admission.Response {
	node := &corev1.Node{}
	if err := json.Unmarshal(request.Object.Raw, node); err != nil {
		return undecided(fmt.Errorf("read the Node: %w", err))
	}
	rules, err := n.rules(ctx)
	if err != nil {
		return undecided(err)
	}
	decision := taints.AtBirth(node, rules)
	if !decision.TaintsChanged {
		return admission.Allowed("")
	}
	return admission.Patched("", patch(node, decision)...)
}

// rules are those that act on new nodes. The cache answers only once it is synced. Few rules opt in and nodes are rare, so
// they are compiled anew each time.
func (n *newNodes) rules(ctx context.Context) (*taints.Rules, error) {
	var list readinessv1alpha1.NodeReadinessRuleList
	if err := n.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var rules []*taints.Rule
	for i := range list.Items {
		rule := &list.Items[i]
		if !rule.Spec.TaintNewNodes || rule.DeletionTimestamp != nil {
			continue
		}
		if compiled, err := taints.Compile(rule); err == nil { // the rule's own status tells of the error
			rules = append(rules, compiled)
		}
	}
	return taints.NewRules(rules...), nil
}

func undecided(err error) admission.Response {
	return admission.Allowed("").WithWarnings(fmt.Sprintf("fettle could not look at the new node yet: %v", err))
}

// patch adds what the decision adds, and touches nothing else: a Node may have fields that this program does not know.
func patch(node *corev1.Node, d taints.Decision) []jsonpatch.Operation {
	var out []jsonpatch.Operation
	if node.Spec.Taints == nil {
		out = append(out, jsonpatch.NewOperation("add", "/spec/taints", []corev1.Taint{}))
	}
	for _, taint := range d.Taints[len(node.Spec.Taints):] {
		out = append(out, jsonpatch.NewOperation("add", "/spec/taints/-", taint))
	}
	if node.Annotations == nil {
		return append(out, jsonpatch.NewOperation("add", "/metadata/annotations", d.Annotations))
	}
	for key, value := range d.Annotations {
		out = append(out, jsonpatch.NewOperation("add", "/metadata/annotations/"+escape.Replace(key), *value))
	}
	return out
}
