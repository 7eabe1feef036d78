// Package readiness turns NodeReadinessRules into what internal/taints decides with, and tells people what came of it: in the
// status of rules, and in events on nodes and rules.
//
// Rules are compiled once for every generation and handed out as one immutable set. Standings take down what was decided for
// each node and keep the counts; Status writes what they add up to, at most about once a second, apart from the path on which
// nodes get their taints. Conditions and events are tables, Statements and Notes.
package readiness
