package controller

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nodeQueue holds the nodes to look at. New ones come first: until they are looked at, pods may come to them. Those that were
// there when the controller began come after those that something happened to. It notes when nodes are added for events that arrive, not for retries and timers.
//
// It is client-go's queue, ordered by lanes, in place of controller-runtime's own with priorities: that one hands items out
// while it holds a lock which a worker needs to give one back, and now and then hangs for good when it is shut down.
type nodeQueue struct {
	queueOf
	lanes    *lanes
	arrivals *arrivals
}

func newNodeQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request], a *arrivals) queueOf {
	order := newLanes()
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: order})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: inner})
	return &nodeQueue{
		queueOf:  workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying}),
		lanes:    order,
		arrivals: a,
	}
}

// Add implements workqueue.TypedInterface.
func (q *nodeQueue) Add(r reconcile.Request) {
	q.arrivals.arrived(r.Name, time.Now())
	q.queueOf.Add(r)
}

// AddWithOpts implements priorityqueue.PriorityQueue, so that the sources say what can wait.
func (q *nodeQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, r := range requests {
		switch {
		case o.RateLimited:
			q.AddRateLimited(r)
		case o.After > 0:
			q.AddAfter(r, o.After)
		default:
			if o.Priority != nil {
				q.lanes.next(r, laneOf(*o.Priority))
			}
			q.Add(r)
		}
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue. What is tried again is as urgent as anything.
func (q *nodeQueue) GetWithPriority() (r reconcile.Request, priority int, shutdown bool) {
	r, shutdown = q.Get()
	return r, 0, shutdown
}

// lane is how soon a request is due.
type lane int

const (
	first lane = iota
	usual
	last
	laneCount
)

// newNode is the priority of nodes that are new. Below zero are those that were there when the controller began.
const newNode = 1

func laneOf(priority int) lane {
	switch {
	case priority > 0:
		return first
	case priority < 0:
		return last
	}
	return usual
}

// lanes is the order of a queue: first in, first out, in each of the lanes.
type lanes struct {
	mu sync.Mutex
	// said has the lane of requests that are about to be pushed, where it is not the usual one. Guarded by mu, and so is all
	// else.
	said   map[reconcile.Request]lane
	queues [laneCount]list.List // of requests
	waits  map[reconcile.Request]place
}

// place is where a request waits.
type place struct {
	in lane
	at *list.Element
}

func newLanes() *lanes {
	return &lanes{said: map[reconcile.Request]lane{}, waits: map[reconcile.Request]place{}}
}

// next says the lane of a request that is about to be pushed. One that waits already moves only forward.
func (l *lanes) next(r reconcile.Request, in lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[r] = in
}

// take gives what was said. mu is held.
func (l *lanes) take(r reconcile.Request) lane {
	in, said := l.said[r]
	if !said {
		return usual
	}
	delete(l.said, r)
	return in
}

// Push implements workqueue.Queue.
func (l *lanes) Push(r reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.take(r)
	l.waits[r] = place{in, l.queues[in].PushBack(r)}
}

// Touch implements workqueue.Queue: a request that waits is added again, and may have become more urgent.
func (l *lanes) Touch(r reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.take(r)
	if p, waits := l.waits[r]; waits && in < p.in {
		l.queues[p.in].Remove(p.at)
		l.waits[r] = place{in, l.queues[in].PushBack(r)}
	}
}

// Len implements workqueue.Queue.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waits)
}

// Pop implements workqueue.Queue. It is called only while something waits.
func (l *lanes) Pop() reconcile.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := first
	for l.queues[in].Len() == 0 {
		in++
	}
	r, _ := l.queues[in].Remove(l.queues[in].Front()).(reconcile.Request)
	delete(l.waits, r)
	return r
}
