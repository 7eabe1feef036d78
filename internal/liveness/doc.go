// Package liveness decides whether an agent is alive from what the controller has observed of its lease.
//
// It never compares clocks of two machines: progress is an observed change, and time is the controller's own, passed
// in. Conditions are no sign of life, since the controller writes Unknown to them itself; only the lease is.
//
// It knows nothing of Kubernetes; internal/liveness/watch feeds it and makes its verdicts known.
package liveness
