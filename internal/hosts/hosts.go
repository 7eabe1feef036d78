// Package hosts keeps one Host for every Node, and says on it when its agent is silent.
//
// Everything else in a Host's status belongs to its agent. Recovery is the agent's to write: it sees Unknown on its Host
// and applies its truth again.
package hosts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// Trim leaves of a Host what the controller reads: whose it is, whether an agent reported, its conditions, and what the
// agent publishes. It is a transform of caches. Objects other than Hosts pass unchanged.
func Trim(obj any) (any, error) {
	host, ok := obj.(*fettlev1alpha1.Host)
	if !ok {
		return obj, nil
	}
	host.ManagedFields = nil
	host.Status.Health = nil
	return host, nil
}

// Of reports whether the Host is that of this very Node, and not of one that had the name before.
func Of(host *fettlev1alpha1.Host, node *corev1.Node) bool {
	return host != nil && host.Spec.NodeUID == node.UID
}

// Ensure makes the Node's Host when there is none, and removes one of a Node that had the name before: the next call
// makes the new one. host is the Host as cached, or nil.
func Ensure(ctx context.Context, c client.Client, node *corev1.Node, host *fettlev1alpha1.Host) error {
	switch {
	case Of(host, node):
		return nil
	case host != nil:
		exactly := client.Preconditions{UID: &host.UID}
		if err := c.Delete(ctx, host, exactly); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete host %s of an older node: %w", host.Name, err)
		}
		return nil
	}
	err := c.Create(ctx, &fettlev1alpha1.Host{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: fettlev1alpha1.HostSpec{NodeUID: node.UID},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) { // then the cache is behind
		return fmt.Errorf("create host %s: %w", node.Name, err)
	}
	return nil
}

// IsUnknown reports whether the Host says already that nothing is known of its agent.
func IsUnknown(host *fettlev1alpha1.Host) bool {
	ready := apimeta.FindStatusCondition(host.Status.Conditions, fettlev1alpha1.HostReady)
	return ready != nil && ready.Status == metav1.ConditionUnknown
}

// SetUnknown says on the Host that nothing is known of its agent. It fails when the Host changed since it was read.
func SetUnknown(ctx context.Context, c client.Client, host *fettlev1alpha1.Host, reason, message string, now time.Time) error {
	updated := host.DeepCopy()
	apimeta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
		Type: fettlev1alpha1.HostReady, Status: metav1.ConditionUnknown, Reason: reason, Message: message,
		ObservedGeneration: host.Generation, LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	})
	patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, updated, patch, client.FieldOwner("fettle-controller")); err != nil {
		return fmt.Errorf("set host %s to Unknown: %w", host.Name, err)
	}
	return nil
}
