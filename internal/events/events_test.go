package events

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writes takes what a queue writes. That the API server takes it too is tested in internal/controller.
type writes struct {
	client.Client
	notes []string
	at    []time.Time
}

func (w *writes) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	w.notes, w.at = append(w.notes, obj.(*eventsv1.Event).Note), append(w.at, time.Now())
	return nil
}

func event(note string) Event {
	return Event{Regarding: corev1.ObjectReference{Kind: "Node", Name: "n"}, Type: "Normal", Reason: "R", Action: "A", Note: note, At: time.Now()}
}

func TestEventsGiveWayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, busyUntil := time.Now(), 500*time.Millisecond
		var w writes
		q := NewQueue(&w, "test", func() bool { return time.Since(began) < busyUntil }, logr.Discard())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Start(ctx) }()

		q.Add(event("a"))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(w.at) != 1 || w.at[0].Sub(began) < busyUntil {
			t.Errorf("written at %v of %v", w.at, began)
		}
		busyUntil = time.Hour
		q.Add(event("b"))
		time.Sleep(patience + time.Second)
		synctest.Wait()
		if len(w.notes) != 2 {
			t.Errorf("an event waits for ever: %v", w.notes)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheOldestEventsAreDroppedWhenTooManyWait(t *testing.T) {
	var w writes
	q := NewQueue(&w, "test", func() bool { return false }, logr.Discard())
	for i := range capacity + 5 {
		q.Add(event(fmt.Sprint(i)))
	}
	first, _, ok := q.take()
	if !ok || first.Note != "5" || len(q.waiting) != capacity-1 {
		t.Errorf("first %s of %d", first.Note, len(q.waiting)+1)
	}
}
