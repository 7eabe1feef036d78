package readiness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

const (
	// statusPause is the least time between two passes over all rules and nodes.
	statusPause = time.Second
	// judgingShare bounds the share of time spent judging: the pause is at least so many times what the last pass took
	// for it.
	judgingShare = 10
	// retryPause is when rules whose status could not be written are tried again although nothing changed.
	retryPause = 5 * time.Second
)

// upstreamFinalizer was put on rules by the node readiness controller, which this one replaces. Nobody else would remove
// it. This controller needs none of its own: what a rule owns is recorded on the nodes.
const upstreamFinalizer = "readiness.node.x-k8s.io/cleanup-taints"

// Status writes the status of all rules.
type Status struct {
	Cache    client.Reader
	Client   client.Client
	Rules    *Rules
	Failures *Failures
	Memory   *Memory
	// Checks look at the rules themselves. They must be there before Start.
	Checks []Check
	Log    logr.Logger

	wake chan struct{}
	// written holds rules as our last write left them, until the cache has caught up.
	written map[types.UID]*readinessv1alpha1.NodeReadinessRule
	// judging is the time that the present pass has spent on judging.
	judging time.Duration
}

// NewStatus returns a Status with nothing to do yet.
func NewStatus(cache client.Reader, c client.Client, rules *Rules, failures *Failures, memory *Memory, log logr.Logger) *Status {
	return &Status{Cache: cache, Client: c, Rules: rules, Failures: failures, Memory: memory, Log: log,
		wake: make(chan struct{}, 1), written: map[types.UID]*readinessv1alpha1.NodeReadinessRule{}}
}

// Wake says that a node or a rule changed. It never blocks.
func (s *Status) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // a pass is due anyway
	}
}

// NeedLeaderElection makes only the leader write.
func (s *Status) NeedLeaderElection() bool { return true }

// Start writes until the context ends. A change is written at once when nothing was written for a while.
func (s *Status) Start(ctx context.Context) error {
	s.Wake()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry:
		}
		retry, s.judging = nil, 0
		if err := s.pass(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.Log.Error(err, "cannot write the status of some rules; will try again")
			retry = time.After(retryPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(statusPause, judgingShare*s.judging)):
		}
	}
}

// pass judges every rule over all nodes and writes what changed.
func (s *Status) pass(ctx context.Context, now time.Time) error {
	set, err := s.Rules.Current(ctx)
	if err != nil {
		return err
	}
	var rules readinessv1alpha1.NodeReadinessRuleList
	if err := s.Cache.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	nodes, err := listNodes(ctx, s.Cache)
	if err != nil {
		return err
	}
	var faults []error
	seen := map[types.UID]bool{}
	for i := range rules.Items {
		rule := s.latest(&rules.Items[i])
		seen[rule.UID] = true
		if err := s.one(ctx, rule, set, nodes, now); err != nil {
			faults = append(faults, err)
		}
	}
	for uid := range s.written {
		if !seen[uid] {
			delete(s.written, uid)
		}
	}
	return errors.Join(faults...)
}

// listNodes gives all nodes by name.
func listNodes(ctx context.Context, from client.Reader) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]*corev1.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// one brings the status of one rule up to date, or lets go of one that is being deleted.
func (s *Status) one(ctx context.Context, rule *readinessv1alpha1.NodeReadinessRule, set *taints.Rules, nodes []*corev1.Node, now time.Time) error {
	c, known := s.Rules.compiled(rule.UID)
	if !known || c.generation != rule.Generation { // changed just now; its event wakes us again
		return nil
	}
	if c.deleting {
		return s.release(ctx, rule, nodes)
	}
	began := time.Now()
	status := subject{api: rule, compiled: c.rule, fault: c.fault, rules: set, was: rule.Status, failures: s.Failures, memory: s.Memory}.judge(nodes, now)
	s.judging += time.Since(began)
	if equality.Semantic.DeepEqual(status, rule.Status) {
		return nil
	}
	updated := rule.DeepCopy()
	updated.Status = status
	if err := s.Client.Status().Update(ctx, updated); err != nil {
		return s.tolerate(fmt.Errorf("write status of rule %s: %w", rule.Name, err))
	}
	s.written[rule.UID] = updated
	return nil
}

// release removes the upstream finalizer of a rule that is being deleted once no node has a taint on its account.
func (s *Status) release(ctx context.Context, rule *readinessv1alpha1.NodeReadinessRule, nodes []*corev1.Node) error {
	if !controllerutil.ContainsFinalizer(rule, upstreamFinalizer) {
		return nil
	}
	for _, node := range nodes {
		if taints.ReadRecord(node).Names(rule.UID) {
			return nil // the node's next event wakes us again
		}
	}
	released := rule.DeepCopy()
	controllerutil.RemoveFinalizer(released, upstreamFinalizer)
	patch := client.MergeFromWithOptions(rule, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, released, patch); err != nil {
		return s.tolerate(fmt.Errorf("remove finalizer of rule %s: %w", rule.Name, err))
	}
	return nil
}

// tolerate drops the errors that a later event brings right: the rule is gone, or changed meanwhile.
func (s *Status) tolerate(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		s.Wake()
		return nil
	}
	return err
}

// latest returns the newer of a rule as the cache has it and as our own last write left it.
func (s *Status) latest(cached *readinessv1alpha1.NodeReadinessRule) *readinessv1alpha1.NodeReadinessRule {
	ours := s.written[cached.UID]
	if ours == nil {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, ours.ResourceVersion); err == nil && order < 0 {
		return ours
	}
	delete(s.written, cached.UID)
	return cached
}
