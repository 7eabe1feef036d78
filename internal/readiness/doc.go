// Package readiness turns NodeReadinessRules into what internal/taints decides with, and tells in a rule's status what
// came of it.
//
// Rules are compiled once for every generation and handed out as one immutable set. Status is computed from the cached
// nodes at most about once a second, apart from the path on which nodes get their taints.
package readiness
