package events

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestTheAPIServerTakesEvents writes an event that happened twice about a node, and reads it as people do.
func TestTheAPIServerTakesEvents(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	api, err := client.New(cp.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(api, "test", func() bool { return false }, logr.Discard())
	e := Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "11111111-0000-4000-8000-000000000000"},
		Type:      corev1.EventTypeWarning, Reason: "WriteFailed", Action: "WriteNode", Note: "no", At: time.Now(),
	}
	q.Add(e)
	e.At = e.At.Add(time.Second)
	q.Add(e)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Start(ctx) }()
	var list eventsv1.EventList
	await.That(t, "the event is there", func() bool {
		if err := api.List(t.Context(), &list, client.InNamespace("default"), client.MatchingFields{"regarding.name": "n"}); err != nil {
			t.Fatal(err)
		}
		return len(list.Items) > 0
	})
	if got := list.Items[0]; len(list.Items) != 1 || got.Series == nil || got.Series.Count != 2 || got.Reason != e.Reason {
		t.Errorf("%d events: %+v", len(list.Items), got)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
