// Package taints decides which taints the readiness rules put on a node.
//
// It is pure: a node, the rules and the time come in, and what to write comes out. One call answers for all rules at
// once, and everything it needs to know of the past is on the node itself: the ownership record (which taints are
// there on account of which rules) and the bootstrap markers. Both are changed in the same write as the taints, so
// there is no moment at which a crash could part them.
//
// It knows nothing of API servers, caches or queues; internal/nodewriter carries its decisions out.
package taints
