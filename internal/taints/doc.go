// Package taints decides which taints the readiness rules put on a node.
//
// It is pure: a node, the rules and what was seen of the node come in, and what to write comes out. One call answers for
// all rules at once. What must not be forgotten is on the node itself: the ownership record (which taints are there on
// account of which rules), the bootstrap markers, and which rules have judged the node. All change in the same write as
// the taints, so there is no moment at which a crash could part them. What may be forgotten, since the node shows enough to
// begin anew from, is its History: when reporters were heard, and since when conditions are as they are.
//
// It knows nothing of API servers, caches or queues; internal/nodewriter carries its decisions out, and
// internal/readiness holds histories and bounds.
package taints
