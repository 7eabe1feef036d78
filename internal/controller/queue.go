package controller

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nodeQueue holds the nodes to look at. Those that were there when the controller began come after those that something
// happened to. It notes when nodes are added for events that arrive, not for retries and timers.
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
		case o.Priority != nil && *o.Priority < 0:
			q.lanes.canWait(r)
			q.Add(r)
		default:
			q.Add(r)
		}
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue. What is tried again is as urgent as anything.
func (q *nodeQueue) GetWithPriority() (r reconcile.Request, priority int, shutdown bool) {
	r, shutdown = q.Get()
	return r, 0, shutdown
}

// lanes is the order of a queue: first in, first out, in each of two lanes.
type lanes struct {
	mu sync.Mutex
	// patient are the requests whose next push can wait. Guarded by mu, and so is all else.
	patient map[reconcile.Request]bool
	// urgent comes before slow. Both are of requests.
	urgent, slow list.List
	waits        map[reconcile.Request]place
}

// place is where a request waits.
type place struct {
	in *list.List
	at *list.Element
}

func newLanes() *lanes {
	return &lanes{patient: map[reconcile.Request]bool{}, waits: map[reconcile.Request]place{}}
}

// canWait is said of a request that is about to be pushed, unless it waits already.
func (l *lanes) canWait(r reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patient[r] = true
}

// Push implements workqueue.Queue.
func (l *lanes) Push(r reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := &l.urgent
	if l.patient[r] {
		in = &l.slow
	}
	delete(l.patient, r)
	l.waits[r] = place{in, in.PushBack(r)}
}

// Touch implements workqueue.Queue: a request that waits is added again, and may have become urgent.
func (l *lanes) Touch(r reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.waits[r]; p.in == &l.slow && !l.patient[r] {
		l.slow.Remove(p.at)
		l.waits[r] = place{&l.urgent, l.urgent.PushBack(r)}
	}
	delete(l.patient, r)
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
	in := &l.urgent
	if in.Len() == 0 {
		in = &l.slow
	}
	r, _ := in.Remove(in.Front()).(reconcile.Request)
	delete(l.waits, r)
	return r
}
