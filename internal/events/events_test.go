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
	notes  []string
	at     []time.Time
	series []*eventsv1.EventSeries
}

func (w *writes) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	e := obj.(*eventsv1.Event)
	w.notes, w.at, w.series = append(w.notes, e.Note), append(w.at, time.Now()), append(w.series, e.Series)
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

func TestWhatIsSaidAgainWhileItWaitsBecomesOneEventWithACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		q := NewQueue(&w, "test", func() bool { return false }, logr.Discard())
		for range 3 {
			q.Add(event("held"))
			q.Add(event("let go"))
			time.Sleep(time.Second)
		}
		q.Add(event("once"))
		last := time.Now().Add(-time.Second)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Start(ctx) }()
		synctest.Wait()
		if fmt.Sprint(w.notes) != "[held let go once]" {
			t.Fatalf("written: %q", w.notes)
		}
		for i, count := range []int32{3, 3} {
			if s := w.series[i]; s == nil || s.Count != count || !s.LastObservedTime.Time.Equal(last) {
				t.Errorf("series of %q: %+v", w.notes[i], s)
			}
		}
		if w.series[2] != nil {
			t.Errorf("an event that happened once has a series: %+v", w.series[2])
		}
		q.Add(event("held"))
		synctest.Wait()
		if len(w.notes) != 4 || w.series[3] != nil {
			t.Errorf("after it was written it is another event: %q, %+v", w.notes, w.series)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
