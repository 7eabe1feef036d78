// Package nodewriter is the only place that writes Node objects.
//
// A write is one patch that holds everything that changes on the node at that moment, and it tests what the decision
// behind it was made from: the node's UID, its list of taints and the annotations it changes. When a test fails the node
// is read live and the decision is made again; it is never repeated from a cache, which may be as old as before.
//
// It knows nothing of rules or agents: what to write comes from its callers as pure functions of a node.
package nodewriter
