// Package controller wires the cluster side together: one reconciler that computes everything about one node, the watch
// of leases, the writer of rules' status, and the queue of events.
//
// The flow for a node is: what is silent becomes Unknown, taints follow from conditions, the Host comes last. The cost
// of one node's event does not depend on the number of nodes.
package controller
