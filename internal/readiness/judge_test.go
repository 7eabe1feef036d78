package readiness

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ruleOf(conditions ...string) *readinessv1alpha1.NodeReadinessRule {
	r := &readinessv1alpha1.NodeReadinessRule{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "11111111-0000-4000-8000-000000000000", Generation: 3},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": "a"}},
			EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
			Taint:           readinessv1alpha1.TaintSpec{Key: "r.example.com/x", Effect: "NoSchedule"},
		},
	}
	for _, c := range conditions {
		r.Spec.Conditions = append(r.Spec.Conditions, readinessv1alpha1.ConditionRequirement{Type: c, RequiredStatus: "True"})
	}
	return r
}

// subjectOf prepares a rule for judgement, with the status as it was.
func subjectOf(t *testing.T, r *readinessv1alpha1.NodeReadinessRule) subject {
	t.Helper()
	compiled, err := taints.Compile(r)
	return subject{api: r, compiled: compiled, fault: err, rules: taints.NewRules(compiled), was: r.Status, failures: &Failures{}, memory: &Memory{}}
}

func nodeNamed(name string, status corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}}
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: status}}
	}
	return n
}

// decided gives the node after the rules were applied to it.
func decided(n *corev1.Node, rules *taints.Rules) *corev1.Node {
	d := taints.Decide(n, rules, taints.Seen{Now: noon})
	n = n.DeepCopy()
	n.Spec.Taints = d.Taints
	for key, value := range d.Annotations {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = *value
	}
	return n
}

func TestStatusIsBoundedWhateverTheFleet(t *testing.T) {
	var conditions []string
	for i := range 32 {
		conditions = append(conditions, fmt.Sprintf("%s/%d", strings.Repeat("c", 300), i))
	}
	for _, dry := range []bool{false, true} {
		r := ruleOf(conditions...)
		r.Spec.DryRun = dry
		s := subjectOf(t, r)
		var nodes []*corev1.Node
		for i := range 5000 {
			n := nodeNamed(fmt.Sprintf("%s-%04d", strings.Repeat("n", 240), i), "")
			if !dry {
				n = decided(n, s.rules)
			}
			nodes = append(nodes, n)
			if i%2 == 0 {
				s.failures.Set(n.Name, errors.New(strings.Repeat("e", 5000)), []types.UID{r.UID}, noon)
			}
		}
		status := s.judge(nodes, noon)
		encoded, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) > 60<<10 {
			t.Errorf("dry run %v: %d bytes", dry, len(encoded))
		}
		if *status.Nodes != (readinessv1alpha1.NodeCounts{Selected: 5000, Held: 5000, Failed: 2500}) {
			t.Errorf("dry run %v: %+v", dry, *status.Nodes)
		}
		if dry && len(status.DryRunResults.Summary) > maxSummary {
			t.Errorf("a summary of %d bytes", len(status.DryRunResults.Summary))
		}
		if len(status.NodeEvaluations) == 0 || status.NodeEvaluations[0].NodeName != nodes[0].Name {
			t.Errorf("%d evaluations", len(status.NodeEvaluations))
		}
	}
}

func TestListsHoldTheFirstHundredByName(t *testing.T) {
	s := subjectOf(t, ruleOf("A"))
	var nodes []*corev1.Node
	for i := range 250 {
		status := corev1.ConditionFalse
		if i%2 == 0 {
			status = corev1.ConditionTrue
		}
		nodes = append(nodes, decided(nodeNamed(fmt.Sprintf("n%03d", i), status), s.rules))
	}
	status := s.judge(nodes, noon)
	if len(status.AppliedNodes) != 100 || status.AppliedNodes[99] != "n099" {
		t.Errorf("applied: %d, last %v", len(status.AppliedNodes), status.AppliedNodes[len(status.AppliedNodes)-1])
	}
	if len(status.NodeEvaluations) != 100 || status.NodeEvaluations[99].NodeName != "n199" {
		t.Errorf("held: %d", len(status.NodeEvaluations))
	}
	if *status.Nodes != (readinessv1alpha1.NodeCounts{Selected: 250, Ready: 125, Held: 125}) {
		t.Errorf("%+v", *status.Nodes)
	}
}

func TestTimesChangeOnlyWithWhatTheyAreAbout(t *testing.T) {
	r := ruleOf("A")
	s := subjectOf(t, r)
	nodes := []*corev1.Node{decided(nodeNamed("a", "False"), s.rules), decided(nodeNamed("b", "False"), s.rules)}
	r.Status = s.judge(nodes, noon)
	again := subjectOf(t, r).judge(nodes, noon.Add(time.Hour))
	if !equality.Semantic.DeepEqual(r.Status, again) {
		t.Errorf("a second look changed the status:\n%+v\n%+v", r.Status, again)
	}
	nodes[1] = decided(nodeNamed("b", "Unknown"), s.rules)
	later := subjectOf(t, r).judge(nodes, noon.Add(time.Hour))
	if !later.NodeEvaluations[0].LastEvaluationTime.Time.Equal(noon) || !later.NodeEvaluations[1].LastEvaluationTime.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("evaluations: %+v", later.NodeEvaluations)
	}
}

func TestReady(t *testing.T) {
	unparsable := func(r *readinessv1alpha1.NodeReadinessRule) {
		r.Spec.NodeSelector.MatchExpressions = []readinessv1alpha1.NodeSelectorRequirement{{Key: "a", Operator: "Near"}}
	}
	enforced := func(r *readinessv1alpha1.NodeReadinessRule) {
		apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: ConditionReady, Status: "True", Reason: ReasonEnforced, ObservedGeneration: 3})
	}
	enforcedBefore := func(r *readinessv1alpha1.NodeReadinessRule) {
		apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: ConditionReady, Status: "True", Reason: ReasonEnforced, ObservedGeneration: 2})
	}
	for _, tc := range []struct {
		name    string
		change  func(*readinessv1alpha1.NodeReadinessRule)
		applied bool
		fails   bool
		want    metav1.ConditionStatus
		reason  string
	}{
		{name: "a rule that every node follows", applied: true, want: "True", reason: ReasonEnforced},
		{name: "a new rule that has not reached a node", want: "False", reason: ReasonApplying},
		{name: "a new generation that has not reached a node", change: enforcedBefore, want: "False", reason: ReasonApplying},
		{name: "one node's change does not make an enforced rule unready", change: enforced, want: "True", reason: ReasonEnforced},
		{name: "a write that fails does", change: enforced, fails: true, want: "False", reason: ReasonWritesFailing},
		{name: "a dry run has nothing to apply", change: func(r *readinessv1alpha1.NodeReadinessRule) { r.Spec.DryRun = true }, want: "True", reason: ReasonDryRun},
		{name: "a selector that cannot be parsed", change: unparsable, want: "False", reason: ReasonInvalidSelector},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ruleOf("A")
			if tc.change != nil {
				tc.change(r)
			}
			s := subjectOf(t, r)
			n := nodeNamed("a", "False")
			if tc.applied {
				n = decided(n, s.rules)
			}
			if tc.fails {
				s.failures.Set("a", errors.New("no"), []types.UID{r.UID}, noon)
			}
			status := s.judge([]*corev1.Node{n}, noon)
			c := apimeta.FindStatusCondition(status.Conditions, ConditionReady)
			if c.Status != tc.want || c.Reason != tc.reason || c.ObservedGeneration != 3 || c.Message == "" {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestADryRunShowsWhatARuleOwnsAndWouldGiveUp(t *testing.T) {
	r := ruleOf("A")
	s := subjectOf(t, r)
	left := decided(nodeNamed("left", "False"), s.rules)
	left.Labels = map[string]string{"pool": "elsewhere"}
	r.Spec.DryRun = true
	got := subjectOf(t, r).judge([]*corev1.Node{left}, noon).DryRunResults
	if got.TaintsToRemove != 1 || got.AffectedNodes != 1 || got.Summary != "would untaint 1: left" {
		t.Errorf("%+v", got)
	}
}

func BenchmarkJudge5000Nodes(b *testing.B) {
	compiled, err := taints.Compile(ruleOf("A"))
	if err != nil {
		b.Fatal(err)
	}
	s := subject{api: ruleOf("A"), compiled: compiled, rules: taints.NewRules(compiled), failures: &Failures{}, memory: &Memory{}}
	var nodes []*corev1.Node
	for i := range 5000 {
		nodes = append(nodes, decided(nodeNamed(fmt.Sprintf("n%04d", i), "True"), s.rules))
	}
	for b.Loop() {
		s.judge(nodes, noon)
	}
}
