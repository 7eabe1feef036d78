package controller

import (
	"sync"
	"time"
)

// arrivals knows since when each node waits to be looked at, so that it can be told how long it took until what was
// received came to a write. It may be used concurrently.
type arrivals struct {
	mu sync.Mutex
	// since has, by node, when the first event arrived that nobody has looked at yet. Guarded by mu.
	since map[string]time.Time
}

func (a *arrivals) arrived(node string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	if _, waits := a.since[node]; !waits {
		a.since[node] = at
	}
}

// take gives since when a node has waited, and begins anew; zero when it was not an event that brought us here.
func (a *arrivals) take(node string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.since[node]
	delete(a.since, node)
	return at
}

// putBack lets a node that was looked at in vain wait on since an earlier time.
func (a *arrivals) putBack(node string, at time.Time) {
	if at.IsZero() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since[node] = at
}
