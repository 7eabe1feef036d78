package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

var (
	before = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now    = before.Add(time.Hour)
)

func on(name, status, reason string, since time.Time) kubeclient.NodeCondition {
	return kubeclient.NodeCondition{Type: name, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}
}

func TestNodeConditions(t *testing.T) {
	wanted := health.Condition{Type: "fettle.dev/NetworkReady", Status: health.StatusFalse, Reason: "ConfigMissing", Message: "no file"}
	for _, tc := range []struct {
		name  string
		there []kubeclient.NodeCondition
		since time.Time
	}{
		{name: "a condition that is new changed now", since: now},
		{
			name:  "one of another status changed now",
			there: []kubeclient.NodeCondition{on(wanted.Type, "True", "OK", before)}, since: now,
		},
		{
			name:  "one that the controller set to Unknown changed now",
			there: []kubeclient.NodeCondition{on(wanted.Type, "Unknown", "AgentSilent", before)}, since: now,
		},
		{
			name:  "one of the same status keeps its time, whatever its reason",
			there: []kubeclient.NodeCondition{on(wanted.Type, "False", "PluginMissing", before)}, since: before,
		},
		{
			name:  "another type of the same status does not matter",
			there: []kubeclient.NodeCondition{on("Ready", "False", "KubeletNotReady", before)}, since: now,
		},
		{
			name:  "one without a time is given one",
			there: []kubeclient.NodeCondition{on(wanted.Type, "False", "ConfigMissing", time.Time{})}, since: now,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NodeConditions(tc.there, []health.Condition{wanted}, now.Add(300*time.Millisecond))
			if len(got) != 1 {
				t.Fatalf("got %+v", got)
			}
			want := kubeclient.NodeCondition{
				Type: wanted.Type, Status: "False", Reason: "ConfigMissing", Message: "no file",
				LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(tc.since),
			}
			if got[0] != want {
				t.Errorf("got  %+v\nwant %+v", got[0], want)
			}
		})
	}
}

func TestConditionsSay(t *testing.T) {
	wanted := []health.Condition{{Type: "a", Status: health.StatusTrue, Reason: "OK", Message: "fine"}}
	there := func(c kubeclient.NodeCondition) []kubeclient.NodeCondition {
		return []kubeclient.NodeCondition{on("Ready", "True", "KubeletReady", before), c}
	}
	for _, tc := range []struct {
		name  string
		there []kubeclient.NodeCondition
		want  bool
	}{
		{name: "the same at another time", there: there(kubeclient.NodeCondition{Type: "a", Status: "True", Reason: "OK", Message: "fine"}), want: true},
		{name: "another status", there: there(kubeclient.NodeCondition{Type: "a", Status: "Unknown", Reason: "OK", Message: "fine"})},
		{name: "another reason", there: there(kubeclient.NodeCondition{Type: "a", Status: "True", Reason: "Slow", Message: "fine"})},
		{name: "another message", there: there(kubeclient.NodeCondition{Type: "a", Status: "True", Reason: "OK", Message: "so so"})},
		{name: "nothing", there: []kubeclient.NodeCondition{on("Ready", "True", "KubeletReady", before)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := conditionsSay(tc.there, wanted); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNodeStatusBody(t *testing.T) {
	t.Run("holds our conditions, the name and the UID, and nothing else", func(t *testing.T) {
		c := kubeclient.NodeCondition{
			Type: "a", Status: "True", Reason: "OK", Message: "fine",
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(before),
		}
		body, err := NodeStatus("n", "uid-1", []kubeclient.NodeCondition{c})
		if err != nil {
			t.Fatal(err)
		}
		want := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"uid-1"},"status":{"conditions":[{` +
			`"type":"a","status":"True","lastHeartbeatTime":"2026-03-01T13:00:00Z","lastTransitionTime":"2026-03-01T12:00:00Z",` +
			`"reason":"OK","message":"fine"}]}}`
		if string(body) != want {
			t.Errorf("got  %s\nwant %s", body, want)
		}
	})
	t.Run("without conditions withdraws all of ours", func(t *testing.T) {
		body, err := NodeStatus("n", "uid-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"uid-1"},"status":{}}`; string(body) != want {
			t.Errorf("got %s", body)
		}
	})
	t.Run("keeps to its size with messages without end", func(t *testing.T) {
		var wanted []health.Condition
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			wanted = append(wanted, health.Condition{Type: name, Status: health.StatusFalse, Reason: "R", Message: strings.Repeat("é\n", 100_000)})
		}
		body, err := NodeStatus("n", "uid-1", NodeConditions(nil, wanted, now))
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > len(wanted)*(health.MaxMessage+250)+200 || !json.Valid(body) {
			t.Errorf("body has %d bytes", len(body))
		}
	})
}
