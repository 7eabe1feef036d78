package events

import (
	"context"
	"strings"
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
	for shift := range 4 { // so that names are cut at letters, dashes and dots
		name := strings.Repeat("x", shift) + strings.Repeat("a-a.", 62) + strings.Repeat("b", 5-shift)
		q.Add(Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name},
			Type:      corev1.EventTypeNormal, Reason: "LongName", Action: "WriteNode", Note: name, At: time.Now(),
		})
	}
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
	if err := api.List(t.Context(), &list, client.MatchingFields{"reason": "LongName"}); err != nil || len(list.Items) != 4 {
		t.Errorf("%d events about objects with names as long as they may be, %v", len(list.Items), err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
