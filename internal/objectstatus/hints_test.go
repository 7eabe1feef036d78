package objectstatus

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseHints(t *testing.T) {
	all := Hints{ObservedGeneration: true, ReadyCondition: true, Conditions: []string{"Synced", "Healthy"}}
	for _, tc := range []struct {
		name, text string
		want       Hints
		faults     []string // parts of the error; none: there is none
	}{
		{name: "nothing"},
		{name: "blanks are nothing", text: " \t"},
		{name: "a hint", text: "has-observed-generation", want: Hints{ObservedGeneration: true}},
		{name: "another", text: "has-ready-condition", want: Hints{ReadyCondition: true}},
		{name: "a list of one", text: "conditions=Synced", want: Hints{Conditions: []string{"Synced"}}},
		{name: "combined", text: "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", want: all},
		{name: "in any order", text: "conditions=Synced;Healthy,has-ready-condition,has-observed-generation", want: all},
		{name: "blanks around parts", text: " has-observed-generation , has-ready-condition,\n conditions = Synced ; Healthy ", want: all},
		{name: "camel case", text: "hasObservedGeneration,hasReadyCondition", want: Hints{ObservedGeneration: true, ReadyCondition: true}},
		{name: "snake case", text: "has_observed_generation,has_ready_condition", want: Hints{ObservedGeneration: true, ReadyCondition: true}},
		{name: "twice is once", text: "has-ready-condition,has-ready-condition,conditions=A;A,conditions=B;A", want: Hints{ReadyCondition: true, Conditions: []string{"A", "B"}}},
		{name: "condition types with a prefix", text: "conditions=example.com/Synced", want: Hints{Conditions: []string{"example.com/Synced"}}},

		{name: "an unknown hint", text: "has-status", faults: []string{`hint "has-status" is unknown; known are has-observed-generation`}},
		{name: "a comma at the end", text: "has-ready-condition,", faults: []string{"a hint is empty"}},
		{name: "a comma at the beginning", text: ",has-ready-condition", faults: []string{"a hint is empty"}},
		{name: "a name that is missing", text: "=A", faults: []string{"a hint is empty"}},
		{name: "a value where none belongs", text: "has-ready-condition=", faults: []string{"hint has-ready-condition takes no value"}},
		{name: "a list that is missing", text: "conditions", faults: []string{"conditions lacks its list"}},
		{name: "an empty list", text: "conditions=", faults: []string{"a condition type is empty"}},
		{name: "a semicolon at the end", text: "conditions=A;", faults: []string{"a condition type is empty"}},
		{name: "a blank in the list", text: "conditions=A; ;B", faults: []string{"a condition type is empty"}},
		{name: "a list with the wrong separator", text: "conditions=A B", faults: []string{`"A B" is not a condition type`}},
		{name: "a value in the list", text: "conditions=A=B", faults: []string{`"A=B" is not a condition type`}},
		{name: "all faults at once", text: "has-status,,conditions=", faults: []string{"has-status", "a hint is empty", "a condition type is empty"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseHints(tc.text)
			if !reflect.DeepEqual(got, tc.want) || (err == nil) != (len(tc.faults) == 0) {
				t.Fatalf("%+v, error %v; want %+v", got, err, tc.want)
			}
			for _, fault := range tc.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("the error %q does not say %q", err, fault)
				}
			}
		})
	}
}

// FuzzParseHints: text gives hints or faults, never both and never neither, and what was understood can be written down
// and understood again.
func FuzzParseHints(f *testing.F) {
	for _, seed := range []string{"", "has-observed-generation,has-ready-condition,conditions=Synced;Healthy", "conditions=", ",", "=;", "conditions = a.b/C", "HAS_READY-condition"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hints, err := ParseHints(text)
		empty := reflect.DeepEqual(hints, Hints{})
		if err != nil {
			if !empty {
				t.Fatalf("%q: %+v and %v", text, hints, err)
			}
			return
		}
		if empty != (strings.TrimSpace(text) == "") {
			t.Fatalf("%q: %+v", text, hints)
		}
		again, err := ParseHints(written(hints))
		if err != nil || !reflect.DeepEqual(again, hints) {
			t.Fatalf("%q: %+v, and written down %q: %+v, %v", text, hints, written(hints), again, err)
		}
	})
}

func written(h Hints) string {
	var parts []string
	if h.ObservedGeneration {
		parts = append(parts, hasObservedGeneration)
	}
	if h.ReadyCondition {
		parts = append(parts, hasReadyCondition)
	}
	if len(h.Conditions) > 0 {
		parts = append(parts, conditionsHint+"="+strings.Join(h.Conditions, ";"))
	}
	return strings.Join(parts, ",")
}
