package objectstatus

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"pgregory.net/rapid"
)

func equalJSON(a, b map[string]any) bool { return reflect.DeepEqual(a, b) }

// TestAnalyze goes through spec/status-detection, section by section. The object is at generation 5.
func TestAnalyze(t *testing.T) {
	const ready = "conditions: [{type: Ready, status: 'True'}]"
	for _, tc := range []struct {
		name, status, hints string
		want                Status
		says                string // part of the message
	}{
		// How vanilla kstatus works.
		{name: "step 1: the newest generation was observed, step 2: Ready is True", status: "{observedGeneration: 5, " + ready + "}", want: Current},
		{name: "step 1: an older generation was observed, whatever Ready says", status: "{observedGeneration: 4, " + ready + "}", want: InProgress, says: "generation is 5, but latest observed generation is 4"},
		{name: "step 1: an object is born with an impossible observedGeneration", status: "{observedGeneration: -1, " + ready + "}", want: InProgress},
		{name: "step 1: observedGeneration 0 is one, too", status: "{observedGeneration: 0, " + ready + "}", want: InProgress},
		{name: "step 1: no observedGeneration, step 2: Ready is True", status: "{" + ready + "}", want: Current},
		{name: "step 2: Ready is False", status: "{observedGeneration: 5, conditions: [{type: Ready, status: 'False', message: still pulling}]}", want: InProgress, says: "still pulling"},
		{name: "step 2: Ready is False and says nothing but its reason", status: "{conditions: [{type: Ready, status: 'False', reason: Pulling}]}", want: InProgress, says: "Pulling"},
		{name: "step 2: Ready is Unknown", status: "{observedGeneration: 5, conditions: [{type: Ready, status: Unknown}]}", want: InProgress},
		{name: "step 2: no condition Ready is implicitly ready", status: "{observedGeneration: 5, conditions: [{type: Synced, status: 'False'}]}", want: Current},
		{name: "no status at all is implicitly ready", want: Current},
		{name: "what the object says of itself by kstatus' own conditions: Stalled", status: "{conditions: [{type: Stalled, status: 'True', message: bad image}]}", want: Failed, says: "bad image"},
		{name: "what the object says of itself by kstatus' own conditions: Reconciling", status: "{conditions: [{type: Reconciling, status: 'True'}, {type: Ready, status: 'True'}]}", want: InProgress},

		// Why that is not sufficient, and what each hint does about it.
		{name: "false positive: observedGeneration is set late, and Ready is of an older spec", status: "{" + ready + "}", hints: "has-observed-generation", want: InProgress, says: "generation 5 has not been looked at"},
		{name: "false positive: Ready is set late", status: "{observedGeneration: 5}", hints: "has-ready-condition", want: Unknown, says: "no condition Ready"},
		{name: "false positive: other conditions signal readiness", status: "{observedGeneration: 5, conditions: [{type: Synced, status: 'False', message: behind}]}", hints: "conditions=Synced", want: InProgress, says: "condition Synced is False: behind"},

		{name: "has-observed-generation: the newest generation was observed", status: "{observedGeneration: 5, " + ready + "}", hints: "has-observed-generation", want: Current},
		{name: "has-observed-generation: no status at all", hints: "has-observed-generation", want: InProgress},
		{name: "has-observed-generation: the condition Ready tells instead, of the newest", status: "{conditions: [{type: Ready, status: 'True', observedGeneration: 5}]}", hints: "has-observed-generation", want: Current},
		{name: "has-observed-generation: the condition Ready tells instead, of an older one", status: "{conditions: [{type: Ready, status: 'True', observedGeneration: 1}]}", hints: "has-observed-generation", want: InProgress},

		{name: "has-ready-condition: Ready is True", status: "{" + ready + "}", hints: "has-ready-condition", want: Current},
		{name: "has-ready-condition: Ready is False", status: "{conditions: [{type: Ready, status: 'False'}]}", hints: "has-ready-condition", want: InProgress},
		{name: "has-ready-condition: no status at all", hints: "has-ready-condition", want: Unknown},

		{name: "conditions: all are True", status: "{conditions: [{type: Synced, status: 'True'}, {type: Healthy, status: 'True'}]}", hints: "conditions=Synced;Healthy", want: Current},
		{name: "conditions: one is absent", status: "{conditions: [{type: Synced, status: 'True'}]}", hints: "conditions=Synced;Healthy", want: InProgress, says: "no condition Healthy"},
		{name: "conditions: one is False", status: "{conditions: [{type: Synced, status: 'True'}, {type: Healthy, status: 'False'}]}", hints: "conditions=Synced;Healthy", want: InProgress, says: "condition Healthy is False"},
		{name: "conditions: one is Unknown", status: "{conditions: [{type: Synced, status: Unknown, reason: Polling}]}", hints: "conditions=Synced", want: InProgress, says: "Unknown: Polling"},
		{name: "conditions: one is none of the three", status: "{conditions: [{type: Synced, status: Maybe}]}", hints: "conditions=Synced", want: InProgress},
		{name: "conditions: one is there twice, and once not True", status: "{conditions: [{type: Synced, status: 'True'}, {type: Synced, status: 'False'}]}", hints: "conditions=Synced", want: InProgress},
		{name: "conditions: they come beside Ready, not in its place", status: "{conditions: [{type: Ready, status: 'False'}, {type: Synced, status: 'True'}]}", hints: "conditions=Synced", want: InProgress},

		{name: "combined: everything is as it should be", status: "{observedGeneration: 5, conditions: [{type: Ready, status: 'True'}, {type: Synced, status: 'True'}, {type: Healthy, status: 'True'}]}", hints: "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", want: Current},
		{name: "combined: generation first", status: "{conditions: [{type: Synced, status: 'True'}]}", hints: "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", want: InProgress, says: "generation 5"},
		{name: "combined: then Ready", status: "{observedGeneration: 5, conditions: [{type: Synced, status: 'True'}]}", hints: "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", want: Unknown, says: "Ready"},
		{name: "combined: then the list", status: "{observedGeneration: 5, " + ready + "}", hints: "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", want: InProgress, says: "Synced"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := custom(t, tc.status, tc.hints)
			unchanged(t, o, func() { wants(t, KStatus{}.Analyze(o, Hints{}), tc.want, tc.says) })
			hints, err := ParseHints(tc.hints)
			if err != nil {
				t.Fatal(err)
			}
			// The caller's hints do what those on the object do.
			wants(t, KStatus{}.Analyze(custom(t, tc.status, ""), hints), tc.want, tc.says)
		})
	}
}

func wants(t *testing.T, got Result, want Status, says string) {
	t.Helper()
	if got.Status != want || !strings.Contains(got.Message, says) || got.Fault != nil {
		t.Errorf("%s, fault %v, says %q; want %s with %q", got.Status, got.Fault, got.Message, want, says)
	}
}

func TestAnalyzeKindsOfKubernetes(t *testing.T) {
	for _, tc := range []struct {
		name, manifest string
		hints          Hints
		want           Status
	}{
		{name: "a running pod that is ready", manifest: "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}", want: Current},
		{name: "a config map needs no status", manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", want: Current},
		{name: "a hint counts for kinds with rules of their own, too", manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", hints: Hints{ReadyCondition: true}, want: Unknown},
		{name: "an object without generation cannot have observed it", manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", hints: Hints{ObservedGeneration: true}, want: InProgress},
		{name: "what is being deleted is that, whatever its hints", manifest: "{apiVersion: example.com/v1, kind: Driver, metadata: {name: a, generation: 1, deletionTimestamp: '2026-01-01T00:00:00Z'}}", hints: Hints{ObservedGeneration: true}, want: Terminating},
		{name: "a failure is one though conditions are missing", manifest: "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {conditions: [{type: Failed, status: 'True'}]}}", hints: Hints{Conditions: []string{"A"}}, want: Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wants(t, KStatus{}.Analyze(object(t, tc.manifest), tc.hints), tc.want, "")
		})
	}
}

// TestFaultsAreReported: waiting does not help where a hint is wrong or a status cannot be read.
func TestFaultsAreReported(t *testing.T) {
	const healthy = "{observedGeneration: 5, conditions: [{type: Ready, status: 'True'}]}"
	for _, tc := range []struct{ name, status, hints, says string }{
		{"an unknown hint", healthy, "has-condition", `"has-condition" is unknown`},
		{"a comma too many", healthy, "has-ready-condition,", "empty"},
		{"an empty list", healthy, "conditions=", "empty"},
		{"a list that is missing", healthy, "conditions", "lacks its list"},
		{"a value where none belongs", healthy, "has-ready-condition=true", "takes no value"},
		{"observedGeneration is no number", "{observedGeneration: five}", "", "status.observedGeneration"},
		{"conditions are no list", "{conditions: yes}", "", "cannot be read"},
		{"the generation of a condition is no number", "{conditions: [{type: Ready, status: 'True', observedGeneration: five}]}", "", "cannot be read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := KStatus{}.Analyze(custom(t, tc.status, tc.hints), Hints{})
			if got.Status != Unknown || got.Fault == nil || got.Message != got.Fault.Error() || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%+v; want Unknown and a fault with %q", got, tc.says)
			}
		})
	}
}

func TestAnnotationPrefixes(t *testing.T) {
	o := custom(t, "{}", "")
	o.SetAnnotations(map[string]string{
		"fettle.dev/status-hint":                       "conditions=A",
		"mycomponent-operator.mydomain.io/status-hint": "has-ready-condition,conditions=B;A",
	})
	for _, tc := range []struct {
		name     string
		prefixes []string
		want     Hints
	}{
		{"ours unless told otherwise", nil, Hints{Conditions: []string{"A"}}},
		{"another in its place", []string{"mycomponent-operator.mydomain.io"}, Hints{ReadyCondition: true, Conditions: []string{"B", "A"}}},
		{"several", []string{"fettle.dev", "mycomponent-operator.mydomain.io"}, Hints{ReadyCondition: true, Conditions: []string{"A", "B"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := KStatus{AnnotationPrefixes: tc.prefixes}.Analyze(o, Hints{}).Hints
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

var statuses = []string{"True", "False", "Unknown", "Maybe"}

// drawObject draws a custom object at generation 1 to 3 with any shape of status.
func drawObject(t *rapid.T) *unstructured.Unstructured {
	status := map[string]any{}
	if rapid.Bool().Draw(t, "observes") {
		status["observedGeneration"] = rapid.Int64Range(-1, 3).Draw(t, "observed")
	}
	var conditions []any
	for range rapid.IntRange(0, 4).Draw(t, "conditions") {
		c := map[string]any{
			"type":   rapid.SampledFrom([]string{"Ready", "A", "B", "Stalled", "Reconciling"}).Draw(t, "type"),
			"status": rapid.SampledFrom(statuses).Draw(t, "status"),
		}
		if rapid.Bool().Draw(t, "generation of condition") {
			c["observedGeneration"] = rapid.Int64Range(1, 3).Draw(t, "generation")
		}
		conditions = append(conditions, c)
	}
	if conditions != nil {
		status["conditions"] = conditions
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Driver",
		"metadata": map[string]any{"name": "a", "generation": rapid.Int64Range(1, 3).Draw(t, "generation")},
	}}
	if rapid.Bool().Draw(t, "has a status") {
		o.Object["status"] = status
	}
	return o
}

func drawHints(t *rapid.T) Hints {
	return Hints{
		ObservedGeneration: rapid.Bool().Draw(t, "has-observed-generation"),
		ReadyCondition:     rapid.Bool().Draw(t, "has-ready-condition"),
		Conditions:         rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", "C"}), 0, 3, rapid.ID[string]).Draw(t, "conditions"),
	}
}

// TestHintsOnlyTighten: with hints an object is current only if it is without them, and each hint more leaves fewer.
func TestHintsOnlyTighten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, some, more := drawObject(t), drawHints(t), drawHints(t)
		vanilla, err := kstatus.Compute(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := (KStatus{}).Analyze(o, Hints{}); got.Status != Status(vanilla.Status) {
			t.Errorf("without hints %s, and kstatus says %s", got.Status, vanilla.Status)
		}
		is, stricter := KStatus{}.Analyze(o, some), KStatus{}.Analyze(o, some.And(more))
		if is.Status == Current && vanilla.Status != kstatus.CurrentStatus || stricter.Status == Current && is.Status != Current {
			t.Errorf("kstatus %s, with hints %s, with more hints %s", vanilla.Status, is.Status, stricter.Status)
		}
		if gate := (Gate{Analyzer: KStatus{}, StatusSubresource: true}).Analyze(o, some); gate.Status == Current && is.Status != Current {
			t.Errorf("the gate says %s, and the analyzer %s", gate.Status, is.Status)
		}
	})
}

// TestHintsAreWhatTheObjectLacks: a hint does the same as writing into a copy of the object what a careful controller would
// have written there, and asking kstatus. This is how the spec tells it.
func TestHintsAreWhatTheObjectLacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, hints := drawObject(t), drawHints(t)
		careful := o.DeepCopy()
		status, _ := careful.Object["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		conditions, _ := status["conditions"].([]any)
		first := func(conditionType string, has func(map[string]any) bool) map[string]any {
			i := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == conditionType && has(c.(map[string]any)) })
			if i < 0 {
				return nil
			}
			return conditions[i].(map[string]any)
		}
		if _, there := status["observedGeneration"]; hints.ObservedGeneration && !there {
			status["observedGeneration"] = int64(-1)
			if c := first("Ready", func(c map[string]any) bool { return c["observedGeneration"] != nil }); c != nil {
				status["observedGeneration"] = c["observedGeneration"]
			}
		}
		if hints.ReadyCondition && first("Ready", func(map[string]any) bool { return true }) == nil {
			conditions = append(conditions, map[string]any{"type": "Ready", "status": "Unknown"})
		}
		status["conditions"] = conditions
		careful.Object["status"] = status
		computed, err := kstatus.Compute(careful)
		if err != nil {
			t.Fatal(err)
		}
		want := computed.Status == kstatus.CurrentStatus
		for _, conditionType := range hints.Conditions {
			present, other := false, false
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == conditionType {
					present, other = true, other || c["status"] != "True"
				}
			}
			want = want && present && !other
		}
		if got := (KStatus{}).Analyze(o, hints); (got.Status == Current) != want {
			t.Errorf("%s (%s), want current: %v", got.Status, got.Message, want)
		}
	})
}
