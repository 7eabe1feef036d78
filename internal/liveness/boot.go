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
}

// ObserveBoots folds one look at both boot IDs into what is known. Boot IDs have no order, so that a difference alone does not
// tell an agent that is behind its node's boot from one that is ahead of its kubelet; only a boot of the node that is seen to
// leave the agent's behind does. An empty ID, as of a kubelet that tells none, says nothing.
func ObserveBoots(prev Boots, node, agent string, now time.Time) Boots {
	next := Boots{Node: node, Agent: agent}
	switch {
	case node == "" || agent == "" || node == agent:
	case agent != prev.Agent: // it has spoken, and its kubelet will follow
	case !prev.Unspoken.IsZero():
		next.Unspoken = prev.Unspoken
	case node != prev.Node && prev.Node == agent:
		next.Unspoken = now
	}
	return next
}
