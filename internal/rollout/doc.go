// Package rollout decides which nodes a NodeWright is worked on next: in which batches, within which budgets.
//
// It is pure, and knows nothing of API servers and hosts.
package rollout
