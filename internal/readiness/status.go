package readiness

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/taints"
)

const (
	// statusPause is the least time between two passes over the rules.
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

// Status writes the status of all rules, and tells in events what became of them.
type Status struct {
	// Checks look at the rules themselves, beside those of this package. They must be there before Start.
	Checks []Check

	cache     client.Reader
	client    client.Client
	standings *Standings
	events    *events.Queue
	log       logr.Logger

	wake chan struct{}
	// all is true when every rule has to be judged.
	all atomic.Bool
	// written holds rules as our last write left them, until the cache has caught up.
	written map[types.UID]*readinessv1alpha1.NodeReadinessRule
	// judged is the version of the rules that was judged last.
	judged int
	// judging is the time that the present pass has spent on judging.
	judging time.Duration
	// again is when there is more to do though nothing changes, as found by the present pass; zero for never.
	again time.Time
}

// NewStatus returns a Status with nothing to do yet.
func NewStatus(cache client.Reader, c client.Client, standings *Standings, queue *events.Queue, log logr.Logger) *Status {
	return &Status{cache: cache, client: c, standings: standings, events: queue, log: log,
		wake: make(chan struct{}, 1), written: map[types.UID]*readinessv1alpha1.NodeReadinessRule{}}
}

// Wake says that a rule changed, or how a node stands with one. It never blocks.
func (s *Status) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // a pass is due anyway
	}
}

// WakeAll says that a Check may find something else now. It never blocks.
func (s *Status) WakeAll() {
	s.all.Store(true)
	s.Wake()
}

// NeedLeaderElection makes only the leader write.
func (s *Status) NeedLeaderElection() bool { return true }

// Start writes until the context ends. A change is written at once when nothing was written for a while.
func (s *Status) Start(ctx context.Context) error {
	s.Wake()
	var timer <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer:
		}
		timer, s.judging, s.again = nil, 0, time.Time{}
		now := time.Now()
		if err := s.pass(ctx, now); err != nil && ctx.Err() == nil {
			s.log.Error(err, "cannot write the status of some rules; will try again")
			s.lookAgain(now.Add(retryPause))
		}
		if !s.again.IsZero() {
			timer = time.After(time.Until(s.again))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(statusPause, judgingShare*s.judging)):
		}
	}
}

// pass judges the rules whose status may have to say something else, writes what changed, and tells what was done.
func (s *Status) pass(ctx context.Context, now time.Time) error {
	if _, err := s.standings.rules.Current(ctx); err != nil {
		return err
	}
	compiled := s.standings.rules.current.Load()
	var rules readinessv1alpha1.NodeReadinessRuleList
	if err := s.cache.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	if err := s.settle(ctx, compiled.version); err != nil {
		return err
	}
	all := s.all.Swap(false) || s.judged != compiled.version
	var faults []error
	for i := range rules.Items {
		rule := s.latest(&rules.Items[i])
		c, known := compiled.byUID[rule.UID]
		if !known || c.generation != rule.Generation { // changed just now; its event wakes us again
			continue
		}
		if c.deleting {
			faults = append(faults, s.release(ctx, rule, now))
			continue
		}
		if all || s.standings.due(rule.UID) || rule.Status.ObservedGeneration != rule.Generation {
			faults = append(faults, s.one(ctx, rule, compiled, now))
		}
		s.tell(rule, now)
	}
	s.judged = compiled.version
	for uid := range s.written {
		if _, exists := compiled.byUID[uid]; !exists {
			delete(s.written, uid)
		}
	}
	s.standings.keep(func(uid types.UID) bool { _, exists := compiled.byUID[uid]; return exists })
	return errors.Join(faults...)
}

// settle finds out whether every node was decided with the rules as they are. Once that is so it stays so until a rule
// changes, and there is nothing to look at: new nodes are decided with what is there.
func (s *Status) settle(ctx context.Context, version int) error {
	if s.standings.settledWith(version) {
		return nil
	}
	nodes, err := listNodes(ctx, s.cache)
	if err != nil {
		return err
	}
	s.standings.settle(nodes, version)
	return nil
}

// one brings the status of one rule up to date.
func (s *Status) one(ctx context.Context, rule *readinessv1alpha1.NodeReadinessRule, rules *compiledRules, now time.Time) error {
	began, c := time.Now(), rules.byUID[rule.UID]
	view := s.standings.view(rule.UID, c.since)
	if !view.complete && rule.Status.ObservedGeneration == rule.Generation {
		s.standings.again(rule.UID) // what is written is about all nodes; that about some of them would be worse
		return nil
	}
	subject := subject{
		api: rule, compiled: c.rule, fault: c.fault, view: view, findings: s.findings(rule, rules),
		unseen: rule.Status.UnseenConditionTypes, failure: s.standings.failureOf,
		look: func(node string) (*corev1.Node, taints.Seen) { return s.look(ctx, node, now) },
	}
	if view.complete {
		subject.unseen = s.standings.unseen(rule.Spec.Conditions)
	}
	status := subject.judge(now)
	s.judging += time.Since(began)
	if equality.Semantic.DeepEqual(status, rule.Status) {
		return nil
	}
	updated := rule.DeepCopy()
	updated.ManagedFields = nil // leaves them as they are; those of the cache are trimmed
	updated.Status = status
	if err := s.client.Status().Update(ctx, updated); err != nil {
		s.standings.again(rule.UID)
		return s.tolerate(fmt.Errorf("write status of rule %s: %w", rule.Name, err))
	}
	for _, e := range transitions(rule, updated, now) {
		s.events.Add(e)
	}
	s.written[rule.UID] = updated
	return nil
}

// look reads a node from the cache.
func (s *Status) look(ctx context.Context, name string, now time.Time) (*corev1.Node, taints.Seen) {
	node := &corev1.Node{}
	if s.cache.Get(ctx, client.ObjectKey{Name: name}, node) != nil { // it is gone, and its event wakes us again
		return nil, taints.Seen{}
	}
	return node, s.standings.memory.View(node, now)
}

// tell tells what was done to nodes on account of a rule.
func (s *Status) tell(rule *readinessv1alpha1.NodeReadinessRule, now time.Time) {
	due, next := s.standings.tell(rule.UID, now)
	for _, t := range due {
		s.events.Add(eventAbout(rule, note(t.reason), t.words, now))
	}
	if !next.IsZero() {
		s.lookAgain(next)
	}
}

// lookAgain makes a pass at a time though nothing changes until then.
func (s *Status) lookAgain(at time.Time) {
	if s.again.IsZero() || at.Before(s.again) {
		s.again = at
	}
}

// release removes the upstream finalizer of a rule that is being deleted once no node has a taint on its account.
func (s *Status) release(ctx context.Context, rule *readinessv1alpha1.NodeReadinessRule, now time.Time) error {
	if !controllerutil.ContainsFinalizer(rule, upstreamFinalizer) {
		return nil
	}
	nodes, err := listNodes(ctx, s.cache)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if taints.ReadRecord(node).Names(rule.UID) {
			s.lookAgain(now.Add(statusPause))
			return nil
		}
	}
	released := rule.DeepCopy()
	controllerutil.RemoveFinalizer(released, upstreamFinalizer)
	patch := client.MergeFromWithOptions(rule, client.MergeFromWithOptimisticLock{})
	if err := s.client.Patch(ctx, released, patch); err != nil {
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
