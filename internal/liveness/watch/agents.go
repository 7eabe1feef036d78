package watch

import (
	"container/heap"
	"time"

	"github.com/fettle-dev/fettle/internal/liveness"
)

// agent is what is known of one agent. Only the goroutine of Watch.Start touches it.
type agent struct {
	node     string
	host     string // UID; empty while there is no Host
	reported bool
	progress liveness.Progress
	// asks is the silence that the lease itself allows for; zero without a lease.
	asks time.Duration

	history liveness.History
	// said is the verdict that others know of.
	said liveness.Verdict
	// confirming is true while a live read of the lease is under way.
	confirming bool

	due   time.Time // of the next look; zero for none
	index int       // in the heap; -1 for not in it
}

func (a *agent) observation() liveness.Observation {
	return liveness.Observation{UID: a.host, Progress: a.progress, Reported: a.reported}
}

// agents holds agents by node, and those that have to be looked at again in the order of that time.
type agents struct {
	byNode map[string]*agent
	queue  dueQueue
}

func newAgents() *agents { return &agents{byNode: map[string]*agent{}} }

func (s *agents) get(node string) *agent {
	a := s.byNode[node]
	if a == nil {
		a = &agent{node: node, index: -1}
		s.byNode[node] = a
	}
	return a
}

func (s *agents) drop(a *agent) {
	s.schedule(a, time.Time{})
	delete(s.byNode, a.node)
}

// schedule sets when to look at the agent again; the zero time means only when something is observed.
func (s *agents) schedule(a *agent, due time.Time) {
	a.due = due
	switch {
	case due.IsZero() && a.index >= 0:
		heap.Remove(&s.queue, a.index)
	case due.IsZero():
	case a.index >= 0:
		heap.Fix(&s.queue, a.index)
	default:
		heap.Push(&s.queue, a)
	}
}

// next is when the first agent is due; ok is false when none is.
func (s *agents) next() (due time.Time, ok bool) {
	if len(s.queue) == 0 {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

// takeDue returns an agent that is due and takes it off the schedule, or nil.
func (s *agents) takeDue(now time.Time) *agent {
	if len(s.queue) == 0 || s.queue[0].due.After(now) {
		return nil
	}
	a := s.queue[0]
	s.schedule(a, time.Time{})
	return a
}

// dueQueue is a container/heap of agents by due time.
type dueQueue []*agent

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *dueQueue) Push(x any) {
	a := x.(*agent)
	a.index = len(*q)
	*q = append(*q, a)
}
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	a.index = -1
	return a
}
