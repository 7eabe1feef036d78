package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/controller/metrics"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/hosts"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
	"github.com/fettle-dev/fettle/internal/nodewriter"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/taints"
)

// nodes brings single nodes to what rules and agents make of them.
type nodes struct {
	cache     cache.Cache
	client    client.Client
	live      client.Reader
	writer    *nodewriter.Writer
	rules     *readiness.Rules
	memory    *readiness.Memory
	standings *readiness.Standings
	status    *readiness.Status
	events    *events.Queue
	agents    *watch.Watch
	spells    spells
	boots     boots
	arrivals  arrivals
	metrics   *metrics.Metrics
	grace     time.Duration
	log       logr.Logger

	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// Reconcile does everything that there is to do about one node.
func (n *nodes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	since := n.arrivals.take(request.Name)
	node, host, err := n.read(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if node == nil {
		n.forget(request.Name)
		return reconcile.Result{}, nil
	}
	node, spell, silenceErr := n.silence(ctx, node, host)
	node, due, taintErr := n.taint(ctx, node, n.agentOf(node, host), since)
	hostErr := n.tendHost(ctx, node, host, spell)
	if overtaken(silenceErr) || overtaken(hostErr) {
		return reconcile.Result{RequeueAfter: overtakenPause}, taintErr
	}
	return reconcile.Result{RequeueAfter: earlier(spell.again, due)}, errors.Join(silenceErr, taintErr, hostErr)
}

// earlier gives the shorter of two waits, of which those of 0 never end.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// overtakenPause gives the cache time to show what overtook us.
const overtakenPause = 200 * time.Millisecond

// overtaken reports whether somebody else, perhaps an agent that is back, wrote first. Then we look again.
func overtaken(err error) bool { return apierrors.IsConflict(err) }

// read gets a node as new as we know it, and its Host if there is one. A node that is gone is nil.
func (n *nodes) read(ctx context.Context, name string) (*corev1.Node, *fettlev1alpha1.Host, error) {
	key := client.ObjectKey{Name: name}
	node := &corev1.Node{}
	if err := n.cache.Get(ctx, key, node); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	host := &fettlev1alpha1.Host{}
	switch err := n.cache.Get(ctx, key, host); {
	case apierrors.IsNotFound(err):
		host = nil
	case err != nil:
		return nil, nil, err
	}
	return n.writer.Latest(node), host, nil
}

func (n *nodes) forget(name string) {
	n.writer.Forget(name)
	n.spells.end(name)
	n.boots.forget(name)
	if n.standings.Forget(name) {
		n.status.Wake()
	}
	n.enqueueAll(n.memory.Forget(name))
}

// agentOf gives what rules have to know of the node's agent.
func (n *nodes) agentOf(node *corev1.Node, host *fettlev1alpha1.Host) taints.Agent {
	var agent taints.Agent
	if !hosts.Of(host, node) {
		return agent
	}
	if verdict := n.agents.Verdict(node.Name, host.UID); verdict.State.Quiet() && n.agents.Fleet().Verdict.Acts() {
		agent.QuietSince = verdict.Since
	}
	if host.Status.Agent != nil {
		agent.BootID = host.Status.Agent.BootID
	}
	for _, name := range host.Status.ConditionTypes {
		if !strings.HasPrefix(name, fettlev1alpha1.ConditionPrefix) {
			agent.Types = append(agent.Types, name)
		}
	}
	return agent
}

// taint writes what the rules want on the node, on account of an event that arrived at since; zero for none. again is when
// to look at the node again though nothing happens; 0 for never.
func (n *nodes) taint(ctx context.Context, node *corev1.Node, agent taints.Agent, since time.Time) (_ *corev1.Node, again time.Duration, _ error) {
	rules, err := n.rules.Current(ctx)
	if err != nil {
		return node, 0, err
	}
	if node, err = n.confirm(ctx, node, rules); err != nil {
		return node, 0, err
	}
	var decision taints.Decision
	written, err := n.writer.Write(ctx, node, func(node *corev1.Node) nodewriter.Change {
		decision = taints.Decide(node, rules, n.memory.Look(node, rules, agent, time.Now()))
		return nodewriter.Change{Taints: decision.Taints, TaintsChanged: decision.TaintsChanged, Annotations: decision.Annotations}
	})
	n.enqueueAll(n.memory.Settle(written, rules, decision))
	if ctx.Err() == nil {
		n.tell(readiness.Judgement{Was: node, Node: written, Rules: rules, Decision: decision, Fault: err, At: time.Now()})
	}
	if err != nil {
		if ctx.Err() == nil {
			n.countFailure(err, concerned(node, decision, rules), rules)
		}
		n.arrivals.putBack(node.Name, since)
		return written, 0, err
	}
	n.countWrite(ctx, node, decision, rules, since)
	if !decision.Due.IsZero() {
		again = max(time.Until(decision.Due), time.Millisecond)
	}
	return written, again, nil
}

// confirm reads a node live when reporters of its conditions seem to have fallen silent: what stands still may be our watch.
func (n *nodes) confirm(ctx context.Context, node *corev1.Node, rules *taints.Rules) (*corev1.Node, error) {
	if !n.memory.Doubts(node, rules, time.Now()) {
		return node, nil
	}
	live, err := n.writer.Live(ctx, node.Name)
	switch {
	case apierrors.IsNotFound(err): // its end will come through the watch
		return node, nil
	case err != nil:
		return node, fmt.Errorf("confirm that reporters on node %s are silent: %w", node.Name, err)
	}
	n.memory.Confirm(live, rules, time.Now())
	return live, nil
}

// tell lets people know what was decided for a node, and what came of it.
func (n *nodes) tell(judgement readiness.Judgement) {
	told, changed := n.standings.Take(judgement)
	for _, e := range told {
		n.log.V(1).Info(e.Note, "node", judgement.Node.Name)
		n.events.Add(e)
	}
	if changed {
		n.status.Wake()
	}
}

// concerned gives the rules on whose account a decision was to be written.
func concerned(node *corev1.Node, decision taints.Decision, rules *taints.Rules) []types.UID {
	var uids []types.UID
	for _, change := range decision.Changes {
		uids = append(uids, change.Rules...)
	}
	if len(uids) > 0 {
		return uids
	}
	for _, rule := range rules.Selecting(node) {
		uids = append(uids, rule.UID)
	}
	return uids
}

// tendHost makes the Host, or says on it what is known of its agent; the Node has been told before.
func (n *nodes) tendHost(ctx context.Context, node *corev1.Node, host *fettlev1alpha1.Host, s say) error {
	if node.DeletionTimestamp != nil {
		return nil
	}
	if !hosts.Of(host, node) {
		return hosts.Ensure(ctx, n.client, node, host)
	}
	if s.hostReason == "" {
		return nil
	}
	if err := hosts.SetUnknown(ctx, n.client, host, s.hostReason, s.hostMessage, time.Now()); err != nil {
		return client.IgnoreNotFound(err)
	}
	n.spells.toldHost(node.Name)
	return nil
}
