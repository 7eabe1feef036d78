package controller

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

func newTestQueue(t *testing.T) *nodeQueue {
	t.Helper()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second)
	q := newNodeQueue("", limiter, &arrivals{}).(*nodeQueue)
	t.Cleanup(q.ShutDown)
	return q
}

func (q *nodeQueue) addPatiently(nodes ...string) {
	for _, n := range nodes {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, requestFor(n))
	}
}

func (q *nodeQueue) addNew(node string) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(newNode)}, requestFor(node))
}

// all takes everything out, in order.
func (q *nodeQueue) all() (order []string) {
	for q.Len() > 0 {
		r, _, _ := q.GetWithPriority()
		q.Done(r)
		order = append(order, r.Name)
	}
	return order
}

func TestWhatHappensComesBeforeWhatWasThere(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  func(*nodeQueue)
		want []string
	}{
		{"in the order they came", func(q *nodeQueue) { q.Add(requestFor("b")); q.Add(requestFor("a")); q.Add(requestFor("b")) }, []string{"b", "a"}},
		{"those that were there come last", func(q *nodeQueue) { q.addPatiently("a", "b"); q.Add(requestFor("c")) }, []string{"c", "a", "b"}},
		{"new ones come first", func(q *nodeQueue) { q.addPatiently("a"); q.Add(requestFor("b")); q.addNew("c"); q.addNew("d") }, []string{"c", "d", "b", "a"}},
		{"something more happens to a new one", func(q *nodeQueue) { q.Add(requestFor("a")); q.addNew("b"); q.Add(requestFor("b")) }, []string{"b", "a"}},
		{"something happens to one that was there", func(q *nodeQueue) { q.addPatiently("a", "b", "c"); q.Add(requestFor("b")) }, []string{"b", "a", "c"}},
		{"what is urgent does not become patient", func(q *nodeQueue) { q.Add(requestFor("a")); q.Add(requestFor("b")); q.addPatiently("a") }, []string{"a", "b"}},
		{"patience does not last", func(q *nodeQueue) {
			q.Add(requestFor("a"))
			q.addPatiently("a")
			q.all()
			q.addPatiently("b")
			q.Add(requestFor("a"))
		}, []string{"a", "b"}},
		{"one that was moved has one turn", func(q *nodeQueue) {
			q.addPatiently("a", "b")
			q.Add(requestFor("a"))
			r, _, _ := q.GetWithPriority()
			q.Done(r)
			q.addPatiently("a")
		}, []string{"b", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newTestQueue(t)
			tc.add(q)
			if got := q.all(); !slices.Equal(got, tc.want) {
				t.Errorf("%q", got)
			}
			if len(q.lanes.waits)+len(q.lanes.said)+q.lanes.queues[first].Len()+q.lanes.queues[usual].Len()+q.lanes.queues[last].Len() > 0 {
				t.Errorf("left: %+v", q.lanes)
			}
		})
	}
}

func TestRetriesAndTimersComeLater(t *testing.T) {
	q := newTestQueue(t)
	q.AddWithOpts(priorityqueue.AddOpts{After: 20 * time.Millisecond}, requestFor("a"))
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, requestFor("b"))
	if q.NumRequeues(requestFor("b")) != 1 {
		t.Error("a retry was not counted")
	}
	var order []string
	for range 2 {
		r, _, _ := q.GetWithPriority() // waits
		order = append(order, r.Name)
		q.Done(r)
	}
	if !slices.Equal(order, []string{"b", "a"}) {
		t.Errorf("%q", order)
	}
	if at := q.arrivals.take("a"); !at.IsZero() {
		t.Error("a timer counts as an event")
	}
}

// Whenever it is shut down, and whatever is in it, the workers end.
func TestShutdownNeverHangs(t *testing.T) {
	for range 300 {
		q := newTestQueue(t)
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					r, _, shutdown := q.GetWithPriority()
					if shutdown {
						return
					}
					q.Done(r)
				}
			})
		}
		var adders sync.WaitGroup
		for i := range 4 {
			adders.Go(func() {
				for k := range 50 {
					q.Add(requestFor(strconv.Itoa(i * k)))
				}
			})
		}
		q.ShutDown()
		adders.Wait()
		workers.Wait()
	}
}
