package readiness

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const pagePath = "../../docs/reference/rules.md"

var update = flag.Bool("update", false, "write the page of reference anew")

func TestThePageIsWhatTheTablesMake(t *testing.T) {
	if *update {
		if err := os.WriteFile(pagePath, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page() {
		t.Errorf("%s is not what the tables make; run this test with -update", pagePath)
	}
}

// page makes the page of reference.
func page() string {
	var p strings.Builder
	p.WriteString("# Conditions and events of rules\n\n" +
		"Made from the tables in the code by `go test ./internal/readiness -run Page -update`. Reasons are API: they are not renamed.\n" +
		"What rules are for and how to write them is on [their own page](../rules.md).\n\n" +
		"## Conditions\n\n" +
		"`Ready` is always there. The others are there only while they are `True`, and then there is something to know. All have the\n" +
		"rule's `observedGeneration`. kstatus, and with it Flux and kpt, takes a rule for in progress until its newest\n" +
		"generation is `Ready`, and for failed while it is `Stalled`.\n\n" +
		"| Condition | Status | Reason | When | What to do | Event |\n|---|---|---|---|---|---|\n")
	for _, s := range Statements {
		event := "-"
		if s.Event != "" {
			event = s.Event
		}
		fmt.Fprintf(&p, "| `%s` | %s | `%s` | %s | %s | %s |\n", s.Type, s.Status, s.Reason, s.Says, s.Do, event)
	}
	fmt.Fprintf(&p, "\nWhere the table names an event, the rule gets one of that type, with the same reason and the condition's message, when the\n"+
		"condition begins to say so.\n\n"+
		"## Events about nodes\n\n"+
		"On a node each is told when it happens. On a rule they are summed up over nodes: one event for each reason and taint, at most\n"+
		"every %s, with the number of nodes and the first %d names. Events that say the same while they wait to be written become one,\n"+
		"with a count.\n\n"+
		"| Reason | Type | Action | On | When |\n|---|---|---|---|---|\n", tellPause, maxNamed)
	for _, n := range Notes {
		var on []string
		if n.OnNode {
			on = append(on, "node")
		}
		if n.OnRule {
			on = append(on, "rule")
		}
		fmt.Fprintf(&p, "| `%s` | %s | `%s` | %s | %s |\n", n.Reason, n.Type, n.Action, strings.Join(on, ", "), n.Says)
	}
	return p.String()
}

func TestTablesAreWellFormed(t *testing.T) {
	reasons := map[string]bool{}
	once := func(reason string) {
		if reason == "" || reasons[reason] || strings.ToUpper(reason[:1]) != reason[:1] {
			t.Errorf("reason %q is empty, there twice or not UpperCamelCase", reason)
		}
		reasons[reason] = true
	}
	eventTypes := []string{"", corev1.EventTypeNormal, corev1.EventTypeWarning}
	for _, s := range Statements {
		once(s.Reason)
		if s.Type != ConditionReady && s.Status != metav1.ConditionTrue {
			t.Errorf("%s: a condition beside Ready is there only while it is True", s.Reason)
		}
		if s.Says == "" || s.Do == "" || !slices.Contains(eventTypes, s.Event) || strings.ContainsAny(s.Says+s.Do, "|\n") {
			t.Errorf("%+v", s)
		}
	}
	for _, n := range Notes {
		once(n.Reason)
		if n.Says == "" || n.Action == "" || n.Type == "" || !n.OnNode && !n.OnRule || strings.ContainsAny(n.Says, "|\n") {
			t.Errorf("%+v", n)
		}
		if _, summed := saysOfRule[n.Reason]; summed != (n.OnNode && n.OnRule) {
			t.Errorf("%s is told on nodes and rules, and has no words for many nodes, or the other way round", n.Reason)
		}
	}
}
