// Package tolerations decides whether pods tolerate taints, and what becomes of those that do not.
//
// It follows what the scheduler and the taint eviction controller of Kubernetes do, and is the only place that does: a
// second answer to the same question would one day be another one. It is pure.
package tolerations
