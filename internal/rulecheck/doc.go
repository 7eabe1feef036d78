// Package rulecheck looks at readiness rules for what their authors cannot see in them: that a rule waits for pods that its
// own taint keeps away, or holds nodes in a way that an autoscaler misunderstands.
//
// What it finds becomes a condition of the rule; it changes nothing else.
package rulecheck
