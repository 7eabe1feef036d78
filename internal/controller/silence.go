package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/hosts"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// nudgeAfter is how long a node may say AgentSilent of a living agent before the agent is asked to report again.
const nudgeAfter = 5 * time.Second

const (
	silentMessage = "the node agent stopped renewing its lease"
	absentMessage = "no node agent has reported yet"
	// rebootedMessage : what the agent said before is about a machine that was.
	rebootedMessage = "the machine has booted, and its node agent has not reported since"
	nudgeMessage    = "the node agent is alive, and is asked to report again"
)

// say is what remains to be done about a silence once the node's conditions are right.
type say struct {
	// hostReason and hostMessage are to be said on the Host, with Ready=Unknown; empty for nothing.
	hostReason, hostMessage string
	// again is when to look at the node again though nothing may have changed; 0 for never.
	again time.Duration
}

// silence sets the agent's conditions on the node to Unknown when nothing vouches for them: the agent is silent, or has said
// nothing since the machine booted.
func (n *nodes) silence(ctx context.Context, node *corev1.Node, host *fettlev1alpha1.Host) (*corev1.Node, say, error) {
	if !hosts.Of(host, node) {
		return node, say{}, nil
	}
	boots := n.boots.observe(node, host, n.agents.Process(node.Name, host.UID), time.Now())
	verdict := n.agents.Verdict(node.Name, host.UID)
	if verdict.State.Quiet() && !n.agents.Fleet().Verdict.Acts() { // it came into force meanwhile; when it ends we look again
		return node, say{}, nil
	}
	switch {
	case verdict.State == liveness.Silent:
		return n.silent(ctx, node, host, silence{since: verdict.Since, note: noteSilent, toHost: say{hostReason: fettlev1alpha1.ReasonHostStatusUnknown, hostMessage: silentMessage}})
	case verdict.State == liveness.NeverReported:
		if host.Status.Agent != nil { // it has reported, and the verdict will follow
			return node, say{}, nil
		}
		// The node may have conditions all the same, of an agent that died before it could report to this Host.
		return n.silent(ctx, node, host, silence{since: verdict.Since, note: noteSilent, absent: true, toHost: say{hostReason: fettlev1alpha1.ReasonHostNeverReported, hostMessage: absentMessage}})
	case !boots.Unspoken.IsZero():
		return n.rebooted(ctx, node, host, boots.Unspoken)
	case boots.Undecided:
		return node, say{again: undecidedPause}, nil
	case verdict.State == liveness.Alive:
		if n.spells.over(node.Name) {
			n.events.Add(noteBack.about(readiness.NodeReference(node), noteBack.says))
		}
		s, err := n.nudge(ctx, node, host)
		return node, s, err
	}
	return node, say{}, nil
}

// silence is why nothing vouches for what an agent said, and what is made of it.
type silence struct {
	since  time.Time
	note   silenceNote
	toHost say
	// absent is true when there was no agent at all.
	absent bool
}

func (n *nodes) silent(ctx context.Context, node *corev1.Node, host *fettlev1alpha1.Host, s silence) (*corev1.Node, say, error) {
	owesNode, owesHost := has(node, host, speaks), !hosts.IsUnknown(host)
	if again := n.spells.silent(node.Name, s.since, owesNode, owesHost, n.grace, time.Now()); again > 0 {
		return node, say{again: again}, nil
	}
	if !s.absent {
		n.spells.spoke(node.Name)
	}
	if owesNode {
		written, err := n.writer.SetUnknown(ctx, node, agentTypes(node, host), fettlev1alpha1.ReasonAgentSilent, s.note.says, time.Now())
		if err != nil {
			return node, say{}, client.IgnoreNotFound(err)
		}
		node = written
		n.spells.toldNode(node.Name)
		n.events.Add(s.note.about(readiness.NodeReference(node), s.note.says))
	}
	if owesHost {
		return node, s.toHost, nil
	}
	return node, say{}, nil
}

// agentTypes are the types of the agent's conditions: those its Host names, and those on the node that have our prefix,
// since the Host may not have heard of them: the agent died before it told, or the Host is a new one. What an agent says
// that lives and cannot renew its lease is not among them: it is why the agent counts as silent, and true.
func agentTypes(node *corev1.Node, host *fettlev1alpha1.Host) []string {
	types := slices.Clone(host.Status.ConditionTypes)
	for _, c := range node.Status.Conditions {
		if name := string(c.Type); strings.HasPrefix(name, fettlev1alpha1.ConditionPrefix) && !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return slices.DeleteFunc(types, func(name string) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return string(c.Type) == name && c.Status == corev1.ConditionFalse && c.Reason == fettlev1alpha1.ReasonHeartbeatImpaired
		})
	})
}

// has reports whether one of the agent's conditions on the node is like that.
func has(node *corev1.Node, host *fettlev1alpha1.Host, like func(corev1.NodeCondition) bool) bool {
	types := agentTypes(node, host)
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return slices.Contains(types, string(c.Type)) && like(c)
	})
}

func silenced(c corev1.NodeCondition) bool { return c.Reason == fettlev1alpha1.ReasonAgentSilent }
func speaks(c corev1.NodeCondition) bool   { return !silenced(c) }

// nudge asks a living agent to report again when the node still says that it is silent: our Unknown and its report
// crossed. It looks live before it does.
func (n *nodes) nudge(ctx context.Context, node *corev1.Node, host *fettlev1alpha1.Host) (say, error) {
	stale := func(node *corev1.Node, host *fettlev1alpha1.Host) bool {
		return !hosts.IsUnknown(host) && has(node, host, silenced)
	}
	if again := n.spells.alive(node.Name, stale(node, host), time.Now()); again != 0 {
		return say{again: max(again, 0)}, nil
	}
	liveNode, liveHost, err := n.readLive(ctx, node.Name)
	if err != nil {
		return say{}, client.IgnoreNotFound(err)
	}
	if !stale(liveNode, liveHost) {
		return say{again: nudgeAfter}, nil
	}
	return say{hostReason: fettlev1alpha1.ReasonHostStatusUnknown, hostMessage: nudgeMessage, again: nudgeAfter}, nil
}

// readLive reads a node and then its Host past the cache: an agent writes the one before the other.
func (n *nodes) readLive(ctx context.Context, name string) (*corev1.Node, *fettlev1alpha1.Host, error) {
	node, err := n.writer.Live(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("read node %s: %w", name, err)
	}
	host := &fettlev1alpha1.Host{}
	if err := n.live.Get(ctx, client.ObjectKey{Name: name}, host); err != nil {
		return nil, nil, fmt.Errorf("read host %s: %w", name, err)
	}
	return node, host, nil
}

// spells remembers what was said of each silence, so that an agent that is back, but whose lease we have not seen yet,
// is not talked down at once.
type spells struct {
	mu     sync.Mutex
	byNode map[string]*spell // guarded by mu
}

type spell struct {
	// since is when the silence began; zero while the agent is alive.
	since time.Time
	// node and host are true once each was told of this silence.
	node, host bool
	// spoke is true when there was an agent before the silence.
	spoke bool
	// odd is since when something contradicts the verdict; zero for not.
	odd time.Time
}

// silent says how long to wait before Unknown is written: 0 for now. What was written once and is gone was overwritten
// by the agent, so its lease will follow; only when it has not after a grace period is Unknown written again.
func (s *spells) silent(node string, since time.Time, owesNode, owesHost bool, grace time.Duration, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.get(node)
	if !p.since.Equal(since) {
		*p = spell{since: since}
	}
	if overwritten := owesNode && p.node || owesHost && p.host; !overwritten {
		p.odd = time.Time{}
		p.node, p.host = p.node || !owesNode, p.host || !owesHost // said already, perhaps by the leader before us
		return 0
	}
	if p.odd.IsZero() {
		p.odd = now
	}
	if wait := p.odd.Add(grace).Sub(now); wait > 0 {
		return wait
	}
	*p = spell{since: since, spoke: p.spoke}
	return 0
}

// alive says how long to wait before a living agent is nudged: 0 for now, negative for no need to.
func (s *spells) alive(node string, stale bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !stale {
		delete(s.byNode, node)
		return -1
	}
	p := s.get(node)
	if !p.since.IsZero() || p.odd.IsZero() {
		*p = spell{odd: now}
	}
	if wait := p.odd.Add(nudgeAfter).Sub(now); wait > 0 {
		return wait
	}
	p.odd = now
	return 0
}

func (s *spells) spoke(node string)    { s.told(node, func(p *spell) { p.spoke = true }) }
func (s *spells) toldNode(node string) { s.told(node, func(p *spell) { p.node = true }) }
func (s *spells) toldHost(node string) { s.told(node, func(p *spell) { p.host = true }) }

func (s *spells) told(node string, mark func(*spell)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byNode[node]; p != nil {
		mark(p)
	}
}

// over ends the silence of an agent that is heard again, and reports whether its node had been told of one.
func (s *spells) over(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byNode[node]
	if p == nil || p.since.IsZero() {
		return false
	}
	delete(s.byNode, node)
	return p.node && p.spoke
}

func (s *spells) end(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNode, node)
}

// get must be called with mu held.
func (s *spells) get(node string) *spell {
	if s.byNode == nil {
		s.byNode = map[string]*spell{}
	}
	p := s.byNode[node]
	if p == nil {
		p = &spell{}
		s.byNode[node] = p
	}
	return p
}
