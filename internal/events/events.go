// Package events tells people what was done to their objects, as events.k8s.io/v1 Events.
//
// An event is never worth delaying what it is about: events wait in a queue while more urgent writes are under way, and
// when the queue is full the oldest are dropped and counted.
package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// capacity bounds the events that wait.
	capacity = 10_000
	// patience is how long an event waits at most for more urgent writes to end.
	patience = 2 * time.Second
	// maxNote is what the API server accepts.
	maxNote = 1024
	// writeTimeout bounds one write; an event that does not get through is dropped.
	writeTimeout = 5 * time.Second
)

// Event is something that happened to an object.
type Event struct {
	// Regarding is the object; cluster-scoped ones have their events in the namespace default.
	Regarding corev1.ObjectReference
	// Type is Normal or Warning.
	Type string
	// Reason is why, Action what was done, both UpperCamelCase.
	Reason, Action string
	Note           string
	At             time.Time
}

// Queue writes events in the order they were added, one at a time.
type Queue struct {
	client client.Client
	// busy says that more urgent writes are under way.
	busy     func() bool
	instance string
	log      logr.Logger

	mu      sync.Mutex
	waiting []Event // guarded by mu
	dropped int     // guarded by mu
	serial  uint64  // guarded by mu
	added   chan struct{}
}

// NewQueue returns a queue that writes through c as the given instance of the controller, and waits while busy.
func NewQueue(c client.Client, instance string, busy func() bool, log logr.Logger) *Queue {
	return &Queue{client: c, instance: instance, busy: busy, log: log, added: make(chan struct{}, 1)}
}

// Add queues an event. It never blocks.
func (q *Queue) Add(e Event) {
	q.mu.Lock()
	if len(q.waiting) == capacity {
		q.waiting = q.waiting[1:]
		q.dropped++
	}
	q.waiting = append(q.waiting, e)
	q.mu.Unlock()
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// NeedLeaderElection : who writes nothing has nothing to tell.
func (q *Queue) NeedLeaderElection() bool { return true }

// Start writes until the context ends; what waits then is lost.
func (q *Queue) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		e, serial, ok := q.take()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-q.added:
			}
			continue
		}
		q.giveWay(ctx)
		if err := q.write(ctx, e, serial); err != nil && ctx.Err() == nil {
			q.log.Error(err, "an event is lost", "reason", e.Reason, "object", e.Regarding.Name)
		}
	}
	return nil
}

func (q *Queue) take() (Event, uint64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 {
		q.log.Info("events were dropped because too many waited", "count", q.dropped)
		q.dropped = 0
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
		return Event{}, 0, false
	}
	e := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.serial++
	return e, q.serial, true
}

// giveWay waits until no urgent write is under way, or patience is over.
func (q *Queue) giveWay(ctx context.Context) {
	over := time.After(patience)
	for q.busy() {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (q *Queue) write(ctx context.Context, e Event, serial uint64) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	note := e.Note
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "")
	}
	return q.client.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("%s.%x.%x", e.Regarding.Name, e.At.UnixNano(), serial),
		},
		EventTime:           metav1.NewMicroTime(e.At),
		ReportingController: "fettle.dev/controller",
		ReportingInstance:   q.instance,
		Action:              e.Action,
		Reason:              e.Reason,
		Regarding:           e.Regarding,
		Note:                note,
		Type:                e.Type,
	})
}
