package controller

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/controller/metrics"
	"github.com/fettle-dev/fettle/internal/taints"
)

// show lets the metrics read the state of the cluster from the caches, which are synced where we lead.
func (n *nodes) show(ctx context.Context, elected <-chan struct{}) {
	n.metrics.Show(metrics.Cluster{
		Leading: func() bool {
			select {
			case <-elected:
				return true
			default:
				return false
			}
		},
		Rules: func() []readinessv1alpha1.NodeReadinessRule {
			var list readinessv1alpha1.NodeReadinessRuleList
			if n.cache.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
				return nil
			}
			return list.Items
		},
		Agents:   n.agents.Counts,
		Fleet:    n.agents.Fleet,
		Liveness: n.agents.Tally,
	})
}

var operations = map[taints.Action]string{taints.Added: metrics.Add, taints.Removed: metrics.Remove, taints.Adopted: metrics.Adopt}

// countWrite counts what a decision that was written has changed. since is when the event arrived that led to it.
func (n *nodes) countWrite(ctx context.Context, before *corev1.Node, decision taints.Decision, rules *taints.Rules, since time.Time) {
	if decision.Empty() {
		return
	}
	now := time.Now()
	done := map[string]bool{}
	for _, change := range decision.Changes {
		operation := operations[change.Action]
		for _, uid := range change.Rules {
			n.metrics.Tainted(nameOf(uid, rules), operation)
		}
		if operation != metrics.Adopt && !done[operation] && !since.IsZero() {
			done[operation] = true
			n.metrics.Reacted(operation, now.Sub(since))
		}
	}
	for key, value := range decision.Annotations {
		uid, marker := strings.CutPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix)
		if _, had := before.Annotations[key]; !marker || had || value == nil {
			continue
		}
		if rule := rules.Get(types.UID(uid)); rule != nil {
			n.metrics.Bootstrapped(rule.Name, n.sinceCreation(ctx, before, rule, now))
		}
	}
}

// sinceCreation gives how old a node is, or -1 for one that is older than the rule and so has not waited for it.
func (n *nodes) sinceCreation(ctx context.Context, node *corev1.Node, rule *taints.Rule, now time.Time) time.Duration {
	api := &readinessv1alpha1.NodeReadinessRule{}
	if err := n.cache.Get(ctx, client.ObjectKey{Name: rule.Name}, api); err != nil || node.CreationTimestamp.Before(&api.CreationTimestamp) {
		return -1
	}
	return max(now.Sub(node.CreationTimestamp.Time), 0)
}

// countFailure counts a write that failed.
func (n *nodes) countFailure(err error, concerned []types.UID, rules *taints.Rules) {
	reason := string(apierrors.ReasonForError(err))
	if reason == string(metav1.StatusReasonUnknown) {
		reason = "WriteFailed"
	}
	for _, uid := range concerned {
		n.metrics.WriteFailed(nameOf(uid, rules), reason)
	}
}

// nameOf is empty for a rule that is gone.
func nameOf(uid types.UID, rules *taints.Rules) string {
	if rule := rules.Get(uid); rule != nil {
		return rule.Name
	}
	return ""
}
