package liveness

import "time"

// Boots is what is remembered of the boots that a node's kubelet and its agent told of. The zero value is that of a node
// never looked at.
type Boots struct {
	// Node and Agent are the boot IDs last seen: in the node's status.nodeInfo, and as the agent last said to its Host.
	Node, Agent string
	// Unspoken is since when the machine has booted without its agent having said anything after it: all that the agent said
	// before is about a machine that was. Zero while it has.
	Unspoken time.Time
	// Undecided is true while the IDs have differed since the first look, and nobody knows whose is the newer.
	Undecided bool
}

// Life is what is known of the process that last told of the agent's boot ID.
type Life int

const (
	// Unclear : it may be alive.
	Unclear Life = iota
	// Lives : it does. No process survives a boot, so its boot is the machine's.
	Lives
	// Gone : it has ended, or says nothing more.
	Gone
)

// ObserveBoots folds one look at both boot IDs into what is known. Boot IDs have no order, so that a difference alone does not
// tell an agent that is behind its node's boot from one that is ahead of its kubelet. A boot of the node that is seen to leave
// the agent's behind does; and when they have differed since the first look, the life of the agent's process does. An empty ID,
// as of a kubelet that tells none, says nothing.
func ObserveBoots(prev Boots, node, agent string, life Life, now time.Time) Boots {
	next := Boots{Node: node, Agent: agent}
	first := prev == Boots{}
	switch {
	case node == "" || agent == "" || node == agent:
	case !first && agent != prev.Agent: // it has spoken, and its kubelet will follow
	case !prev.Unspoken.IsZero():
		next.Unspoken = prev.Unspoken
	case node != prev.Node && prev.Node == agent:
		next.Unspoken = now
	case (first || prev.Undecided) && life == Gone:
		next.Unspoken = now
	case first || prev.Undecided:
		next.Undecided = life == Unclear
	}
	return next
}
