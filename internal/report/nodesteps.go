package report

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// nodeFacts fills in what is known of the node, and says how long it stays so.
func (r *Reporter) nodeFacts(f *Facts, now time.Time) (wait time.Duration) {
	if f.Lease == Impaired {
		f.AgentRight = r.agentRight(f.NodeFresh)
		return 0
	}
	r.told = nil
	w := r.wish(now)
	types := w.types(r.node.Conditions)
	met, wait := w.met(r.node.Conditions, r.messages, now)
	f.NodeRight = met && slices.Equal(r.applied, types)
	_, copied := w.conditions(r.node.Conditions, now)
	f.Mixed = copied || slices.ContainsFunc(r.applied, func(name string) bool { return !slices.Contains(types, name) })
	f.Leftovers = !r.spared && f.NodeFresh && len(Leftovers(r.node, types)) > 0
	return wait
}

func (r *Reporter) readNode(ctx context.Context) error {
	node, err := r.api.Node(ctx, r.o.Node)
	if err != nil {
		return err
	}
	if r.node.UID != "" && r.node.UID != node.UID {
		r.o.Log.Info("the node was created anew", "uid", node.UID)
		r.messages, r.told = nil, nil
		r.o.DoubtNode()
	}
	r.node, r.nodeKnown, r.nodeFresh = node, true, true
	r.applied = append([]string{}, node.Owned...)
	return nil
}

// removeLeftovers comes before the apply that gives them up: after a crash in between they are still known to be ours.
func (r *Reporter) removeLeftovers(ctx context.Context, now time.Time) error {
	names := Leftovers(r.node, r.wish(now).types(r.node.Conditions))
	patch, err := RemovePatch(r.node, names)
	if err != nil {
		return err
	}
	err = r.api.PatchNodeStatus(ctx, r.o.Node, patch)
	r.nodeFresh, r.nodeKnown = false, false
	switch {
	case err == nil:
		r.outdated = 0
		r.o.Log.Info("conditions that are no longer reported were removed from the node", "conditions", names)
		return nil
	case apierrors.IsForbidden(err):
		r.spared = true
		r.o.Log.Warn("conditions that are no longer reported cannot be removed from the node", "conditions", names, "error", err)
		return nil
	default:
		return r.unlessOutdated(err)
	}
}

func (r *Reporter) applyNode(ctx context.Context, now time.Time) error {
	conditions, copied := r.wish(now).conditions(r.node.Conditions, now)
	return r.apply(ctx, conditions, copied, now)
}

// apply stores conditions and nothing else of ours. What was copied is written only if it still stands there.
func (r *Reporter) apply(ctx context.Context, conditions []kubeclient.NodeCondition, copied bool, now time.Time) error {
	at := ""
	if copied {
		at = r.node.ResourceVersion
	}
	body, err := nodeStatusAt(r.o.Node, r.node.UID, at, conditions)
	if err != nil {
		return err
	}
	if err := r.api.ApplyNodeStatus(ctx, r.o.Node, body, kubeclient.ApplyOptions{}); err != nil {
		// What is there now is not known: the write may have been stored, or the node is another.
		r.nodeKnown, r.nodeFresh = false, false
		if copied && apierrors.IsConflict(err) {
			return r.unlessOutdated(err)
		}
		if kubeclient.IsAnotherObject(err) {
			r.o.DoubtNode()
		}
		return err
	}
	r.messages = r.messages.wrote(r.node.Conditions, conditions, now)
	r.node.Conditions, r.nodeFresh, r.outdated = conditions, false, 0
	r.applied = []string{}
	for _, c := range conditions {
		r.applied = append(r.applied, c.Type)
	}
	slices.Sort(r.applied)
	r.board.appliedAt(now)
	r.o.Log.Debug("conditions applied to the node", "conditions", len(conditions))
	return nil
}

// unlessOutdated forgives a write that was refused because the node had changed, a few times: it is read again.
func (r *Reporter) unlessOutdated(err error) error {
	if !kubeclient.IsOutdated(err) {
		return err
	}
	if r.outdated++; r.outdated < outdatedTries {
		return nil
	}
	r.outdated = 0
	return err
}

// word is what is to be said of the agent while its Lease cannot be renewed: only what is bad.
func word(report health.Report) (health.Condition, bool) {
	for _, c := range report.Conditions {
		if c.Type == fettlev1alpha1.ConditionAgentReady {
			return c, c.Status != health.StatusTrue
		}
	}
	return health.Condition{}, false
}

// agentRight reports whether nothing is to be said of the agent: there is no word, it was said, or the node says it. What
// was said once is not said again, whatever becomes of it: the controller may have called the agent silent since, and is
// right.
func (r *Reporter) agentRight(fresh bool) bool {
	w, bad := word(r.report)
	if !bad || r.told != nil && r.told.Status == w.Status && r.told.Reason == w.Reason {
		return true
	}
	if !fresh {
		return false
	}
	c, ok := find(r.node.Conditions, w.Type)
	if ok && c.Status == string(w.Status) && c.Reason == w.Reason {
		r.told = &w
	}
	return r.told != nil && r.told.Status == w.Status && r.told.Reason == w.Reason
}

// applyAgent writes what is to be said of the agent, and everything else of ours as it stands.
func (r *Reporter) applyAgent(ctx context.Context, now time.Time) error {
	w, _ := word(r.report)
	conditions := NodeConditions(r.node.Conditions, []health.Condition{w}, now)
	for _, name := range Ours(r.node) {
		if c, ok := find(r.node.Conditions, name); ok && name != w.Type {
			conditions = append(conditions, c)
		}
	}
	if err := r.apply(ctx, conditions, true, now); err != nil || !r.nodeKnown {
		return err
	}
	r.told = &w
	return nil
}
