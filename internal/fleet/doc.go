// Package fleet judges whether so many agents fell silent that the fault is more likely ours, or the network's, than theirs.
//
// One silent agent is a fact about its machine. A third of all agents silent within a minute is a fact about what lies between
// them and us, and to act on it would take the rest of the cluster down. So there is one verdict for the whole fleet, and
// everything that follows from silence asks it: conditions that become Unknown now, drains and rollouts later. What a living
// agent reports, and every recovery, never asks.
//
// It decides from numbers and knows neither agents nor Kubernetes; internal/liveness/watch counts, and carries the verdict out.
package fleet
