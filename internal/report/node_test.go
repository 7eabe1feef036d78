package report

import (
	"encoding/json"
	"maps"
	"slices"
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

func TestWishMet(t *testing.T) {
	decided := []health.Condition{{Type: "a", Status: health.StatusTrue, Reason: "OK", Message: "fine"}}
	well := kubeclient.NodeCondition{Type: "a", Status: "True", Reason: "OK", Message: "fine"}
	other := kubeclient.NodeCondition{Type: "a", Status: "True", Reason: "OK", Message: "so so"}
	silent := kubeclient.NodeCondition{Type: "p", Status: "Unknown", Reason: "AgentSilent"}
	for _, tc := range []struct {
		name    string
		there   []kubeclient.NodeCondition
		pending []string
		overdue bool
		written messages
		want    bool
		wait    time.Duration
	}{
		{name: "the same", there: []kubeclient.NodeCondition{well}, want: true},
		{name: "another status", there: []kubeclient.NodeCondition{{Type: "a", Status: "Unknown", Reason: "OK", Message: "fine"}}},
		{name: "another reason, however new the message", there: []kubeclient.NodeCondition{{Type: "a", Status: "True", Reason: "Slow", Message: "fine"}},
			written: messages{"a": now}},
		{name: "another message", there: []kubeclient.NodeCondition{other}},
		{name: "another message, a while after the last", there: []kubeclient.NodeCondition{other}, written: messages{"a": now.Add(-messageEvery)}},
		{name: "another message, soon after the last", there: []kubeclient.NodeCondition{other}, written: messages{"a": now.Add(-20 * time.Second)},
			want: true, wait: 40 * time.Second},
		{name: "another message, soon after that of another type", there: []kubeclient.NodeCondition{other}, written: messages{"b": now}},
		{name: "nothing", there: []kubeclient.NodeCondition{on("Ready", "True", "KubeletReady", before)}},
		{name: "whatever stands of a pending type", there: []kubeclient.NodeCondition{well, silent}, pending: []string{"p"}, want: true},
		{name: "a pending type that is not there", there: []kubeclient.NodeCondition{well}, pending: []string{"p"}, overdue: true, want: true},
		{name: "a pending type that was waited for too long to be called silent", there: []kubeclient.NodeCondition{well, silent}, pending: []string{"p"}, overdue: true},
		{name: "a pending type that was waited for too long, of which something else stands",
			there: []kubeclient.NodeCondition{well, on("p", "False", "Broken", before)}, pending: []string{"p"}, overdue: true, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := wish{decided: decided, pending: tc.pending, overdue: tc.overdue}
			if got, wait := w.met(append([]kubeclient.NodeCondition{on("Ready", "True", "KubeletReady", before)}, tc.there...), tc.written, now); got != tc.want || wait != tc.wait {
				t.Errorf("got %v, wait %s; want %v, wait %s", got, wait, tc.want, tc.wait)
			}
		})
	}
}

func TestWishConditions(t *testing.T) {
	heartbeat := on("p", "False", "Broken", before)
	heartbeat.LastHeartbeatTime, heartbeat.Message = metav1.NewTime(before), "as found"
	silent := on("q", "Unknown", "AgentSilent", before)
	there := []kubeclient.NodeCondition{on("Ready", "True", "KubeletReady", before), heartbeat, silent, on("gone", "True", "OK", before)}
	w := wish{
		decided: []health.Condition{{Type: "a", Status: health.StatusTrue, Reason: "OK"}},
		pending: []string{"new", "p", "q"},
	}
	t.Run("what is pending is copied as it stands, what is not configured is not", func(t *testing.T) {
		got, copied := w.conditions(there, now)
		if !copied || len(got) != 3 || got[0].Type != "a" || got[1] != heartbeat || got[2] != silent {
			t.Errorf("got %+v", got)
		}
		if types := w.types(there); !slices.Equal(types, []string{"a", "p", "q"}) {
			t.Errorf("types are %v", types)
		}
	})
	t.Run("nothing is copied where nothing stands", func(t *testing.T) {
		if got, copied := w.conditions(nil, now); copied || len(got) != 1 {
			t.Errorf("got %+v, copied %v", got, copied)
		}
	})
	t.Run("after the wait an agent that speaks is not called silent, and stays unknown", func(t *testing.T) {
		w.overdue = true
		got, _ := w.conditions(there, now)
		if got[1] != heartbeat || got[2].Status != "Unknown" || got[2].Reason != "Pending" || got[2].LastTransitionTime != silent.LastTransitionTime {
			t.Errorf("got %+v", got)
		}
	})
}

func TestMessagesWrote(t *testing.T) {
	c := func(name, message string) kubeclient.NodeCondition {
		return kubeclient.NodeCondition{Type: name, Status: "True", Message: message}
	}
	got := messages{"same": before, "gone": before, "other": before}.wrote(
		[]kubeclient.NodeCondition{c("same", "x"), c("gone", "x"), c("other", "x"), c("unknown", "x")},
		[]kubeclient.NodeCondition{c("same", "x"), c("other", "y"), c("new", "x"), c("unknown", "x")}, now)
	if want := (messages{"same": before, "other": now, "new": now}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLeftovers(t *testing.T) {
	node := kubeclient.Node{
		UID: "uid-1",
		Conditions: []kubeclient.NodeCondition{
			{Type: "Ready"}, {Type: "fettle.dev/Ours"}, {Type: "fettle.dev/Half"}, {Type: "example.com/Half"}, {Type: "fettle.dev/Orphan"}, {Type: "example.com/Foreign"},
		},
		Owned:  []string{"example.com/Half", "fettle.dev/Half", "fettle.dev/Ours"},
		Shared: []string{"Ready", "example.com/Foreign", "example.com/Half", "fettle.dev/Half", "fettle.dev/Orphan"},
	}
	for _, tc := range []struct {
		name string
		keep []string
		want []string
	}{
		{name: "what others own a part of, and what is left of ours", want: []string{"example.com/Half", "fettle.dev/Half", "fettle.dev/Orphan"}},
		{name: "not what is kept", keep: []string{"fettle.dev/Half", "fettle.dev/Orphan"}, want: []string{"example.com/Half"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Leftovers(node, tc.keep); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	t.Run("are removed from behind, each only where it was", func(t *testing.T) {
		patch, err := RemovePatch(node, []string{"example.com/Half", "fettle.dev/Half"})
		want := `[{"op":"test","path":"/metadata/uid","value":"uid-1"},` +
			`{"op":"test","path":"/status/conditions/3/type","value":"example.com/Half"},{"op":"remove","path":"/status/conditions/3"},` +
			`{"op":"test","path":"/status/conditions/2/type","value":"fettle.dev/Half"},{"op":"remove","path":"/status/conditions/2"}]`
		if err != nil || string(patch) != want {
			t.Errorf("got %s, %v", patch, err)
		}
	})
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
		if want := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"uid-1"}}`; string(body) != want {
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
