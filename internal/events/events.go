// Package events tells people what was done to their objects, as events.k8s.io/v1 Events.
//
// An event is never worth delaying what it is about: events wait in a queue while more urgent writes are under way. Those
// that say the same become one with a count while they wait, and when the queue is full the oldest are dropped and counted.
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
	// maxNote and maxName are what the API server accepts.
	maxNote, maxName = 1024, 253
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
	waiting []*entry         // guarded by mu
	same    map[Event]*entry // guarded by mu: those waiting, by what they say
	dropped int              // guarded by mu
	serial  uint64           // guarded by mu
	added   chan struct{}
}

// entry is an event that waits, and how often the same happened since.
type entry struct {
	Event
	count int32
	last  time.Time
}

// what is the event without its time.
func (e Event) what() Event {
	e.At = time.Time{}
	return e
}

// name is that of the API's object: the name of what it is about, cut where needed, and what makes it unique.
func (e *entry) name(serial uint64) string {
	unique := fmt.Sprintf(".%x.%x", e.At.UnixNano(), serial)
	about := e.Regarding.Name
	if room := maxName - len(unique); len(about) > room {
		about = strings.TrimRight(about[:room], "-.") // no part of a name may end in them
	}
	return about + unique
}

// NewQueue returns a queue that writes through c as the given instance of the controller, and waits while busy.
func NewQueue(c client.Client, instance string, busy func() bool, log logr.Logger) *Queue {
	return &Queue{client: c, instance: instance, busy: busy, log: log, same: map[Event]*entry{}, added: make(chan struct{}, 1)}
}

// Add queues an event. It never blocks.
func (q *Queue) Add(e Event) {
	q.queue(e)
	select {
	case q.added <- struct{}{}:
	default:
	}
}

func (q *Queue) queue(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waits := q.same[e.what()]; waits != nil {
		waits.count, waits.last = waits.count+1, e.At
		return
	}
	if len(q.waiting) == capacity {
		q.next()
		q.dropped++
	}
	waits := &entry{Event: e, count: 1, last: e.At}
	q.waiting, q.same[e.what()] = append(q.waiting, waits), waits
}

// next takes the oldest entry. The caller holds mu, and has seen that there is one.
func (q *Queue) next() *entry {
	e := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	delete(q.same, e.what())
	return e
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

func (q *Queue) take() (*entry, uint64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 {
		q.log.Info("events were dropped because too many waited", "count", q.dropped)
		q.dropped = 0
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
		return nil, 0, false
	}
	q.serial++
	return q.next(), q.serial, true
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

func (q *Queue) write(ctx context.Context, e *entry, serial uint64) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	note := e.Note
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "")
	}
	var series *eventsv1.EventSeries
	if e.count > 1 {
		series = &eventsv1.EventSeries{Count: e.count, LastObservedTime: metav1.NewMicroTime(e.last)}
	}
	return q.client.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      e.name(serial),
		},
		EventTime:           metav1.NewMicroTime(e.At),
		Series:              series,
		ReportingController: "fettle.dev/controller",
		ReportingInstance:   q.instance,
		Action:              e.Action,
		Reason:              e.Reason,
		Regarding:           e.Regarding,
		Note:                note,
		Type:                e.Type,
	})
}
