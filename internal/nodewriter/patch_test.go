package nodewriter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const marker = "readiness.k8s.io/bootstrap-completed-11111111-0000-4000-8000-000000000000"

var (
	ours    = corev1.Taint{Key: "r.example.com/network", Value: "pending", Effect: corev1.TaintEffectNoSchedule}
	foreign = corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	evicts  = corev1.Taint{Key: "r.example.com/network", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}}
)

func nodeWith(annotations map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

func value(s string) *string { return &s }

// The patches are applied with the library that the API server applies them with, to the node's JSON as the API server
// makes it: empty lists and maps are absent.
func TestBuildPatch(t *testing.T) {
	for _, tc := range []struct {
		name string
		read *corev1.Node // what the decision was made from
		is   *corev1.Node // what the API server has; nil means the same
		do   Change
		want *corev1.Node // nil means that the patch is refused
	}{
		{
			name: "first taint and first annotation of a bare node",
			read: nodeWith(nil),
			do:   Change{Taints: []corev1.Taint{ours}, TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
			want: nodeWith(map[string]string{"fettle.dev/taints": "x"}, ours),
		},
		{
			name: "another taint beside a foreign one",
			read: nodeWith(map[string]string{"a": "b"}, foreign),
			do:   Change{Taints: []corev1.Taint{foreign, ours}, TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
			want: nodeWith(map[string]string{"a": "b", "fettle.dev/taints": "x"}, foreign, ours),
		},
		{
			name: "the last taint goes with its record",
			read: nodeWith(map[string]string{"fettle.dev/taints": "x"}, ours),
			do:   Change{TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": nil}},
			want: nodeWith(map[string]string{}),
		},
		{
			name: "a key with a slash and a tilde",
			read: nodeWith(map[string]string{"a": "b"}),
			do:   Change{Annotations: map[string]*string{marker: value("1"), "a~b": value("2")}},
			want: nodeWith(map[string]string{"a": "b", marker: "1", "a~b": "2"}),
		},
		{
			name: "an annotation is overwritten",
			read: nodeWith(map[string]string{"fettle.dev/taints": "x"}),
			do:   Change{Annotations: map[string]*string{"fettle.dev/taints": value("y")}},
			want: nodeWith(map[string]string{"fettle.dev/taints": "y"}),
		},
		{
			name: "removing an annotation that is not there is no fault",
			read: nodeWith(nil),
			do:   Change{Taints: []corev1.Taint{ours}, TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": nil}},
			want: nodeWith(nil, ours),
		},
		{
			name: "a taint with the time it was added is as it was read",
			read: nodeWith(map[string]string{"a": "b"}, evicts),
			do:   Change{TaintsChanged: true},
			want: nodeWith(map[string]string{"a": "b"}),
		},
		{
			name: "somebody added a taint meanwhile",
			read: nodeWith(nil),
			is:   nodeWith(nil, foreign),
			do:   Change{Taints: []corev1.Taint{ours}, TaintsChanged: true},
		},
		{
			name: "somebody removed the only taint meanwhile",
			read: nodeWith(nil, foreign),
			is:   nodeWith(nil),
			do:   Change{Taints: []corev1.Taint{foreign, ours}, TaintsChanged: true},
		},
		{
			name: "somebody changed the order of taints meanwhile",
			read: nodeWith(nil, foreign, ours),
			is:   nodeWith(nil, ours, foreign),
			do:   Change{Taints: []corev1.Taint{foreign}, TaintsChanged: true},
		},
		{
			name: "somebody annotated a bare node meanwhile: theirs is not overwritten",
			read: nodeWith(nil),
			is:   nodeWith(map[string]string{"a": "b"}),
			do:   Change{Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
		},
		{
			name: "somebody removed all annotations meanwhile",
			read: nodeWith(map[string]string{"a": "b"}),
			is:   nodeWith(nil),
			do:   Change{Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
		},
		{
			name: "the record was changed meanwhile",
			read: nodeWith(map[string]string{"fettle.dev/taints": "x"}, ours),
			is:   nodeWith(map[string]string{"fettle.dev/taints": "z"}, ours),
			do:   Change{TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": nil}},
		},
		{
			name: "a foreign annotation changed meanwhile and does not matter",
			read: nodeWith(map[string]string{"a": "b"}),
			is:   nodeWith(map[string]string{"a": "c"}),
			do:   Change{Taints: []corev1.Taint{ours}, TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
			want: nodeWith(map[string]string{"a": "c", "fettle.dev/taints": "x"}, ours),
		},
		{
			name: "the node was recreated meanwhile",
			read: nodeWith(nil),
			is:   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u2"}},
			do:   Change{Taints: []corev1.Taint{ours}, TaintsChanged: true},
		},
		{
			name: "a cache that left out foreign annotations still knows that there are some",
			read: trimmed(nodeWith(map[string]string{"a": "b"})),
			is:   nodeWith(map[string]string{"a": "b"}),
			do:   Change{Annotations: map[string]*string{"fettle.dev/taints": value("x")}},
			want: nodeWith(map[string]string{"a": "b", "fettle.dev/taints": "x"}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patch, err := buildPatch(tc.read, tc.do)
			if err != nil {
				t.Fatal(err)
			}
			if tc.is == nil {
				tc.is = tc.read
			}
			decoded, err := jsonpatch.DecodePatch(patch)
			if err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
			got, err := decoded.Apply(encode(t, tc.is))
			if (err == nil) != (tc.want != nil) {
				t.Fatalf("apply %s: %v, want refused: %v", patch, err, tc.want == nil)
			}
			if tc.want != nil && !jsonpatch.Equal(normal(got), encode(t, tc.want)) {
				t.Errorf("got  %s\nwant %s\npatch %s", got, encode(t, tc.want), patch)
			}
		})
	}
}

func encode(t *testing.T, node *corev1.Node) []byte {
	encoded, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// normal drops the empty map that the last annotation leaves behind, as the API server does when it stores the node.
func normal(node []byte) []byte {
	return []byte(strings.ReplaceAll(string(node), `"annotations":{},`, ""))
}

func TestUnknownPatch(t *testing.T) {
	condition := func(conditionType string, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeConditionType(conditionType), Status: status, Reason: reason}
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		has  []corev1.NodeCondition
		want string
	}{
		{name: "a condition that is True", has: []corev1.NodeCondition{condition("A", "True", "OK")},
			want: `{"metadata":{"resourceVersion":"7","uid":"u1"},"status":{"conditions":[{"type":"A","status":"Unknown","reason":"AgentSilent","message":"m","lastTransitionTime":"2026-05-01T12:00:00Z"}]}}`},
		{name: "one that was Unknown for another reason keeps its transition", has: []corev1.NodeCondition{condition("A", "Unknown", "Pending")},
			want: `{"metadata":{"resourceVersion":"7","uid":"u1"},"status":{"conditions":[{"type":"A","status":"Unknown","reason":"AgentSilent","message":"m"}]}}`},
		{name: "one that says so already", has: []corev1.NodeCondition{condition("A", "Unknown", "AgentSilent")}},
		{name: "one of another reporter", has: []corev1.NodeCondition{condition("Ready", "True", "KubeletReady")}},
		{name: "one that the node does not have is not made"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7"}}
			node.Status.Conditions = tc.has
			patch, err := unknownPatch(node, []string{"A", "B"}, "AgentSilent", "m", now)
			if err != nil || string(patch) != tc.want {
				t.Errorf("got  %s, %v\nwant %s", patch, err, tc.want)
			}
		})
	}
}
