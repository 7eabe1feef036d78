package nodewriter

import "sync"

// names holds strings that most nodes have in common, as keys of labels and types of conditions, once for all of them: a
// decoder makes each anew for every node, and they would be a third of what the cache holds. It may be used concurrently.
type names struct {
	mu   sync.RWMutex
	held map[string]string // guarded by mu
}

// maxNames bounds what is held for good, should nodes have names of their own.
const maxNames = 10_000

// one returns a string that is equal, and the same for all who ask.
func (n *names) one(s string) string {
	n.mu.RLock()
	held, ok := n.held[s]
	n.mu.RUnlock()
	if ok {
		return held
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) < maxNames {
		if n.held == nil {
			n.held = map[string]string{}
		}
		n.held[s] = s
	}
	return s
}

func (n *names) keys(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	out := make(map[string]string, len(labels))
	for key, value := range labels {
		out[n.one(key)] = value
	}
	return out
}
