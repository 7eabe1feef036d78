package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/hosts"
)

// Waits between tries of a node that could not be written.
const firstRetry, lastRetry = 20 * time.Millisecond, 30 * time.Second

type (
	queueOf   = workqueue.TypedRateLimitingInterface[reconcile.Request]
	ruleFuncs = handler.TypedFuncs[*readinessv1alpha1.NodeReadinessRule, reconcile.Request]
	ruleEvent = readinessv1alpha1.NodeReadinessRule
)

// start adds the reconciler to the manager, with everything that makes it look at a node.
func (n *nodes) start(mgr manager.Manager, concurrency int) error {
	c, err := controller.New("nodes", mgr, controller.Options{
		Reconciler:              n,
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) queueOf {
			return newNodeQueue(name, limiter, &n.arrivals)
		},
	})
	if err != nil {
		return err
	}
	for _, s := range []source.Source{
		source.Func(func(_ context.Context, queue queueOf) error { n.queue.Store(&queue); return nil }),
		source.Kind(n.cache, &corev1.Node{}, &newFirst{},
			predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
				revived := n.hear(e.ObjectNew)
				return revived || matters(e.ObjectOld, e.ObjectNew)
			}}),
		source.Kind(n.cache, &fettlev1alpha1.Host{}, &handler.TypedEnqueueRequestForObject[*fettlev1alpha1.Host]{},
			predicate.TypedFuncs[*fettlev1alpha1.Host]{UpdateFunc: func(e event.TypedUpdateEvent[*fettlev1alpha1.Host]) bool {
				return hostMatters(e.ObjectOld, e.ObjectNew)
			}}),
		source.Kind(n.cache, &readinessv1alpha1.NodeReadinessRule{}, ruleFuncs{
			CreateFunc: func(ctx context.Context, _ event.TypedCreateEvent[*ruleEvent], q queueOf) { n.rulesChanged(ctx, q) },
			UpdateFunc: func(ctx context.Context, _ event.TypedUpdateEvent[*ruleEvent], q queueOf) { n.rulesChanged(ctx, q) },
			DeleteFunc: func(ctx context.Context, _ event.TypedDeleteEvent[*ruleEvent], q queueOf) { n.rulesChanged(ctx, q) },
		}),
	} {
		if err := c.Watch(s); err != nil {
			return err
		}
	}
	return nil
}

// newFirst adds a node that something happened to, and one that is new before all others.
type newFirst struct {
	handler.TypedEnqueueRequestForObject[*corev1.Node]
}

// Create implements handler.TypedEventHandler.
func (h *newFirst) Create(ctx context.Context, e event.TypedCreateEvent[*corev1.Node], queue queueOf) {
	if ordered, is := queue.(priorityqueue.PriorityQueue[reconcile.Request]); is && !e.IsInInitialList {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(newNode)}, reconcile.Request{NamespacedName: types.NamespacedName{Name: e.Object.Name}})
		return
	}
	h.TypedEnqueueRequestForObject.Create(ctx, e, queue)
}

// enqueue makes the reconciler look at a node. Before the queue exists there is no need to: every node is looked at
// when it begins.
func (n *nodes) enqueue(node string) {
	if queue := n.queue.Load(); queue != nil {
		(*queue).Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	}
}

func (n *nodes) enqueueAll(nodes []string) {
	for _, node := range nodes {
		n.enqueue(node)
	}
}

// rulesChanged takes over the rules as the cache has them, and looks at all nodes if that changes anything for them: what
// a rule selected before is nowhere but on the nodes.
func (n *nodes) rulesChanged(ctx context.Context, queue queueOf) {
	n.status.Wake()
	changed, err := n.rules.Reload(ctx)
	if err != nil || !changed { // the cache fails only when it is being stopped
		return
	}
	var list corev1.NodeList
	if err := n.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range list.Items {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
	}
}

// hear takes in the signs of life that reporters of the node's conditions give. It reports whether that changes anything.
func (n *nodes) hear(node *corev1.Node) (revived bool) {
	rules := n.rules.Loaded()
	return rules != nil && n.memory.Hear(node, rules, time.Now())
}

// matters reports whether a decision could come out differently. Heartbeats alone change none.
func matters(before, after *corev1.Node) bool {
	return before.UID != after.UID ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		}) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!maps.Equal(before.Labels, after.Labels) ||
		!maps.Equal(before.Annotations, after.Annotations)
}

// hostMatters reports whether a Host's node has to be looked at again. What an agent says of its checks does not matter
// here.
func hostMatters(before, after *fettlev1alpha1.Host) bool {
	return before.UID != after.UID ||
		before.Spec != after.Spec ||
		hosts.IsUnknown(before) != hosts.IsUnknown(after) ||
		bootOf(before) != bootOf(after) ||
		!slices.Equal(before.Status.ConditionTypes, after.Status.ConditionTypes)
}

// bootOf is the boot that the Host's agent reported from last.
func bootOf(host *fettlev1alpha1.Host) string {
	if host.Status.Agent == nil {
		return ""
	}
	return host.Status.Agent.BootID
}
