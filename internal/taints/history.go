package taints

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// History is what was observed of one node over time, as far as rules ask for it: when reporters gave signs of life, and
// since when conditions are as they are. It is immutable, and small or empty for a node whose rules use neither maxAge,
// for, nor regateOnReboot. The zero value is that of a node never looked at.
type History struct {
	node  types.UID
	boot  string
	agent Agent
	// blind is until when the controller could see nothing: silence before that does not count.
	blind time.Time
	// signs are by the condition types that rules listen to, as of the last look.
	signs map[string]sign
	holds map[holdID]hold
}

// Agent is what is known of the node's own agent. The zero value is that of one that lives.
type Agent struct {
	// QuietSince is when the agent gave its last sign of life, once it counts as silent; zero while it does not.
	QuietSince time.Time
	// BootID is of the boot that the agent reported from last, or empty.
	BootID string
	// Types are the condition types without our prefix that the agent publishes, too.
	Types []string
}

// sign is when the reporter of a condition was heard last. The zero value is that of a condition that the node does not have.
type sign struct {
	status    corev1.ConditionStatus
	heartbeat time.Time // of the reporter's clock; only compared with others of the same node
	at        time.Time // of ours
	// confirmed is when a live read last showed that there was no newer one.
	confirmed time.Time
	// before is true from a reboot of the node until the reporter is heard again.
	before bool
}

type holdID struct {
	rule types.UID
	// conditionType is that of the requirement; a rule has one for each type.
	conditionType string
}

// hold is how a requirement with a minimum hold stands.
type hold struct {
	// met is whether the requirement is met now, and since is from when on.
	met   bool
	since time.Time
	// counts is what the rule goes by: met, once it lasted long enough.
	counts bool
}

// Observe folds a look at the node into its history. now must come from a monotonic clock.
//
// A node that is looked at for the first time, e.g. after a start of the controller, stands as it shows: where it is held
// nothing counts as met yet, where it is not everything does, and what shows otherwise has to last from now on. A node that
// a rule has never judged is not waited for before it is held.
func (h History) Observe(node *corev1.Node, rules *Rules, agent Agent, now time.Time) History {
	next, _ := h.Hear(node, rules, now)
	next.agent = agent
	var holds map[holdID]hold
	for _, rule := range rules.Selecting(node) {
		if !rule.waits || rule.Completed(node) {
			continue
		}
		for _, required := range rule.Requirements {
			if required.For == nil {
				continue
			}
			id := holdID{rule.UID, required.Type}
			met := rule.met(node, required, next, now)
			is, known := h.holds[id]
			if !known || next.node != h.node {
				is = rule.begin(node, met, now)
			}
			is = is.next(met, required.For, now)
			if !is.met && !rule.knows(node) {
				is.counts = false
			}
			if holds == nil {
				holds = map[holdID]hold{}
			}
			holds[id] = is
		}
	}
	next.holds = holds
	return next
}

// begin is how a requirement stands at the first look.
func (r *Rule) begin(node *corev1.Node, met bool, now time.Time) hold {
	return hold{met: met, since: now, counts: !r.holds(node)}
}

func (h hold) next(met bool, wait *readinessv1alpha1.Hold, now time.Time) hold {
	if met != h.met {
		h.met, h.since = met, now
	}
	if h.counts != h.met && !now.Before(h.due(wait)) {
		h.counts = h.met
	}
	return h
}

// due is when what is the case begins to count.
func (h hold) due(wait *readinessv1alpha1.Hold) time.Time {
	lasts := wait.Adding
	if h.met {
		lasts = wait.Removing
	}
	if lasts == nil {
		return h.since
	}
	return h.since.Add(lasts.Duration)
}

// Hear takes in the signs of life of the reporters of a node, and nothing else: it is cheap enough for every heartbeat.
// revived reports that one is heard again after it had been quiet for too long, so that the node has to be looked at.
func (h History) Hear(node *corev1.Node, rules *Rules, now time.Time) (next History, revived bool) {
	next = h
	if h.node != node.UID {
		next, h = History{node: node.UID}, History{}
	}
	boot := node.Status.NodeInfo.BootID
	rebooted := h.boot != "" && boot != "" && boot != h.boot
	if boot != "" {
		next.boot = boot
	}
	if len(rules.heard) == 0 {
		next.signs = nil
		return next, false
	}
	next.signs = make(map[string]sign, len(rules.heard))
	for conditionType, limit := range rules.heard {
		c := find(node, conditionType)
		was, known := h.signs[conditionType]
		is := was
		switch {
		case c == nil:
			is = sign{}
		case !known:
			is = sign{status: c.Status, heartbeat: c.LastHeartbeatTime.Time, at: firstSign(node, c, now), before: rules.rebooted(node)}
		case c.Status != was.status || !c.LastHeartbeatTime.Time.Equal(was.heartbeat):
			is = sign{status: c.Status, heartbeat: c.LastHeartbeatTime.Time, at: now}
			revived = revived || was.before || limit > 0 && !was.at.IsZero() && now.Sub(was.at) > limit
		case rebooted:
			is.before = true
		}
		next.signs[conditionType] = is
	}
	return next, revived
}

// find gives the node's condition of a type, or nil.
func find(node *corev1.Node, conditionType string) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; string(c.Type) == conditionType {
			return c
		}
	}
	return nil
}

// firstSign is when to count the age of a condition from that is seen for the first time: now, less what the node's own
// clock shows to have passed since its reporter's last heartbeat. So a reporter that died is found out however often the
// controller restarts, and no clocks of two machines are compared. Heartbeats in the future show that a clock is wrong,
// and are left out.
func firstSign(node *corev1.Node, c *corev1.NodeCondition, now time.Time) time.Time {
	heartbeat := c.LastHeartbeatTime.Time
	if heartbeat.IsZero() {
		return now
	}
	newest := heartbeat
	for _, other := range node.Status.Conditions {
		if t := other.LastHeartbeatTime.Time; t.After(newest) && !t.After(now) {
			newest = t
		}
	}
	return now.Add(-newest.Sub(heartbeat))
}

// Excuse forgives all silence of up to a time, until which the controller could not have seen a sign of life.
func (h History) Excuse(until time.Time) History {
	if until.After(h.blind) {
		h.blind = until
	}
	return h
}

// Doubtful reports whether a reporter that the node's rules listen to seems to have been silent for too long, as far as the
// cache shows: a stalled watch is the controller's blindness. A live read tells, heard with Hear, and Confirm says that it
// was made.
func (h History) Doubtful(node *corev1.Node, rules *Rules, now time.Time) bool {
	if len(h.signs) == 0 {
		return false
	}
	for _, rule := range rules.Selecting(node) {
		for _, required := range rule.Requirements {
			s, heard := h.signs[required.Type]
			if !heard || required.MaxAge == nil || h.isAgents(required.Type) || rule.Completed(node) {
				continue
			}
			if limit := required.MaxAge.Duration; h.age(required.Type, now) > limit && now.Sub(s.confirmed) > limit {
				return true
			}
		}
	}
	return false
}

// Confirm says that a live read shows no newer signs of life than those heard.
func (h History) Confirm(now time.Time) History {
	h.signs = maps.Clone(h.signs)
	for conditionType, s := range h.signs {
		s.confirmed = now
		h.signs[conditionType] = s
	}
	return h
}

// isAgents reports whether a condition type is one of our own agent's, which is alive or not by its lease.
func (h History) isAgents(conditionType string) bool {
	return strings.HasPrefix(conditionType, fettlev1alpha1.ConditionPrefix) || slices.Contains(h.agent.Types, conditionType)
}

// age is how long the reporter of a condition has given no sign of life.
func (h History) age(conditionType string, now time.Time) time.Duration {
	since := h.signs[conditionType].at
	if h.isAgents(conditionType) {
		since = h.agent.QuietSince
	}
	switch {
	case since.IsZero():
		return 0
	case since.Before(h.blind):
		return now.Sub(h.blind)
	}
	return now.Sub(since)
}

// expires is when a condition that the node has becomes too old, or zero for one that is already, or is not ageing.
func (h History) expires(required readinessv1alpha1.ConditionRequirement, node *corev1.Node, now time.Time) time.Time {
	age := h.age(required.Type, now)
	if find(node, required.Type) == nil || h.isAgents(required.Type) && h.agent.QuietSince.IsZero() || age > required.MaxAge.Duration {
		return time.Time{}
	}
	return now.Add(required.MaxAge.Duration - age + time.Millisecond) // too old is later than exactly then
}

// outlived reports whether a condition still says how the node was before its last reboot. Where the reporter sends no
// heartbeats nobody can tell, and the condition counts.
func (h History) outlived(conditionType string) bool {
	s := h.signs[conditionType]
	if !s.before {
		return false
	}
	if h.isAgents(conditionType) {
		return h.agent.BootID != "" && h.agent.BootID != h.boot
	}
	return !s.heartbeat.IsZero()
}
