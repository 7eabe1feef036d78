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
	"k8s.io/apimachinery/pkg/util/intstr"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

func TestListsHoldTheFirstHundredByName(t *testing.T) {
	r := ruleOf("A")
	c := newCluster(t, r)
	for i := range 250 {
		status := corev1.ConditionFalse
		if i%2 == 0 {
			status = corev1.ConditionTrue
		}
		c.decide(nil, nodeNamed(fmt.Sprintf("n%03d", 249-i), status))
	}
	status := c.status(r)
	if len(status.AppliedNodes) != 100 || status.AppliedNodes[0] != "n000" || status.AppliedNodes[99] != "n099" {
		t.Errorf("applied: %v", status.AppliedNodes)
	}
	if len(status.NodeEvaluations) != 100 || status.NodeEvaluations[0].NodeName != "n000" || status.NodeEvaluations[99].NodeName != "n198" {
		t.Errorf("held: %d", len(status.NodeEvaluations))
	}
	if *status.Nodes != (readinessv1alpha1.NodeCounts{Selected: 250, Ready: 125, Held: 125}) {
		t.Errorf("%+v", *status.Nodes)
	}
}

func TestTimesChangeOnlyWithWhatTheyAreAbout(t *testing.T) {
	r := ruleOf("A")
	c := newCluster(t, r)
	c.decide(nil, nodeNamed("a", "False"), nodeNamed("b", "False"))
	c.decide(errors.New("no"), nodeNamed("f", "False"))
	r.Status = c.status(r)
	c.now = noon.Add(time.Hour)
	if again := c.status(r); !equality.Semantic.DeepEqual(r.Status, again) {
		t.Errorf("a second look changed the status:\n%+v\n%+v", r.Status, again)
	}
	c.decide(nil, nodeNamed("b", "Unknown"))
	c.decide(errors.New("still no"), nodeNamed("f", "False"))
	later := c.status(r)
	for i, want := range []time.Time{noon, noon.Add(time.Hour), noon} {
		if got := later.NodeEvaluations[i].LastEvaluationTime; !got.Time.Equal(want) {
			t.Errorf("evaluation of %s at %v, want %v", later.NodeEvaluations[i].NodeName, got, want)
		}
	}
	if got := later.FailedNodes[0].LastEvaluationTime; !got.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("another failure is as old as the first: %v", got)
	}
	was, is := apimeta.FindStatusCondition(r.Status.Conditions, ConditionReady), apimeta.FindStatusCondition(later.Conditions, ConditionReady)
	if !is.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("the transition of a condition that has not changed moved to %v", is.LastTransitionTime)
	}
}

// TestConditions gives rules of which one of two nodes does not fulfil the conditions.
func TestConditions(t *testing.T) {
	two := intstr.FromInt32(0)
	for _, tc := range []struct {
		name   string
		change func(*apiRule)
		// undecided leaves a node that nobody has looked at.
		undecided bool
		fails     bool
		// again looks at a ready node a second time, not ready any more.
		again bool
		finds Finding
		ready metav1.ConditionStatus
		// reasons of all conditions, Ready first.
		reasons string
		says    string // in one of the messages
	}{
		{name: "a rule that every node follows", ready: "True", reasons: ReasonEnforced},
		{name: "a rule that has not reached a node", undecided: true, ready: "False", reasons: ReasonApplying},
		{name: "a dry run that has not reached a node has no results yet", change: func(r *apiRule) { r.Spec.DryRun = true }, undecided: true, ready: "False", reasons: ReasonApplying},
		{name: "a write that fails", fails: true, ready: "False", reasons: ReasonWritesFailing, says: "1 node (a)"},
		{name: "a dry run", change: func(r *apiRule) { r.Spec.DryRun = true }, ready: "True", reasons: ReasonDryRun},
		{name: "a suspended rule", change: func(r *apiRule) { r.Spec.Suspend = true }, ready: "True", reasons: ReasonSuspended},
		{name: "a suspended rule in dry run", change: func(r *apiRule) { r.Spec.Suspend, r.Spec.DryRun = true, true }, ready: "True", reasons: ReasonSuspended},
		{name: "a selector that cannot be parsed", change: unparsable, ready: "False", reasons: ReasonInvalidSelector + " " + ReasonSelectorUnusable, says: "Near"},
		{name: "a rule at its bound", change: func(r *apiRule) { r.Spec.MaxTainted = &two }, again: true, ready: "True",
			reasons: ReasonEnforced + " " + ReasonMaxTaintedReached, says: "held: 1 of 2 nodes, and maxTainted is 0; not ready and spared: 1 node (b)"},
		{name: "what a check finds", finds: Finding{ReasonTaintShared, "with rule s"}, ready: "True", reasons: ReasonEnforced + " " + ReasonTaintShared, says: "with rule s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ruleOf("A")
			if tc.change != nil {
				tc.change(r)
			}
			c := newCluster(t, r)
			var fault error
			if tc.fails {
				fault = errors.New("no")
			}
			c.decide(fault, nodeNamed("a", "False"), nodeNamed("b", "True"))
			if tc.again {
				b := c.nodes["b"].DeepCopy()
				b.Status.Conditions[0].Status = "False"
				c.decide(nil, b)
			}
			if tc.undecided {
				c.nodes["c"] = nodeNamed("c", "True")
			}
			var findings []Finding
			if tc.finds.Reason != "" {
				findings = append(findings, tc.finds)
			}
			status := c.status(r, findings...)
			var reasons, messages []string
			for _, is := range status.Conditions {
				reasons, messages = append(reasons, is.Reason), append(messages, is.Message)
				if is.ObservedGeneration != 3 || is.Message == "" || is.LastTransitionTime.IsZero() {
					t.Errorf("incomplete: %+v", is)
				}
			}
			if got := strings.Join(reasons, " "); got != tc.reasons || status.Conditions[0].Type != ConditionReady || status.Conditions[0].Status != tc.ready {
				t.Errorf("conditions %+v, want %s %s", status.Conditions, tc.ready, tc.reasons)
			}
			if !strings.Contains(strings.Join(messages, "\n"), tc.says) {
				t.Errorf("messages %q lack %q", messages, tc.says)
			}
		})
	}
}

func unparsable(r *apiRule) {
	r.Spec.NodeSelector.MatchExpressions = []readinessv1alpha1.NodeSelectorRequirement{{Key: "a", Operator: "Near"}}
}

func TestWhatIsNoLongerSoIsNoLongerSaid(t *testing.T) {
	r := ruleOf("A")
	c := newCluster(t, r)
	c.decide(nil, nodeNamed("a", "True"))
	r.Status = c.status(r, Finding{ReasonTaintShared, "with rule s"})
	if len(r.Status.Conditions) != 2 {
		t.Fatalf("%+v", r.Status.Conditions)
	}
	if again := c.status(r); len(again.Conditions) != 1 {
		t.Errorf("%+v", again.Conditions)
	}
}

func TestADryRunTellsWhatItWouldDo(t *testing.T) {
	r := ruleOf("A", "B")
	c := newCluster(t, r)
	c.decide(nil, nodeNamed("left", "False"), nodeNamed("freed", "False"))
	left, freed := c.nodes["left"].DeepCopy(), c.nodes["freed"].DeepCopy()
	left.Labels = map[string]string{"pool": "elsewhere"}
	freed.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "True"}}
	r.Spec.DryRun, r.Generation = true, 4
	c.decide(nil, left, freed, nodeNamed("new", "True"))
	status := c.status(r)
	want := readinessv1alpha1.DryRunResults{
		AffectedNodes: 3, TaintsToAdd: 1, TaintsToRemove: 2, RiskyOperations: 1, NodesToTaint: []string{"new"}, NodesToUntaint: []string{"freed", "left"},
		MissingConditions: []readinessv1alpha1.MissingCondition{{Type: "B", Count: 1, Nodes: []string{"new"}}},
		Summary:           "would taint 1: new; would untaint 2: freed, left; B is missing on 1: new",
	}
	if !equality.Semantic.DeepEqual(*status.DryRunResults, want) {
		t.Errorf("%+v", *status.DryRunResults)
	}
	if *status.Nodes != (readinessv1alpha1.NodeCounts{Selected: 2, Ready: 1, Held: 1}) || status.AppliedNodes != nil {
		t.Errorf("%+v, applied %v", *status.Nodes, status.AppliedNodes)
	}
	if taints.ReadRecord(c.nodes["left"]).Names(r.UID) == false || len(c.nodes["new"].Spec.Taints) > 0 {
		t.Error("a dry run changed a node")
	}
}

// TestADryRunKeepsTheBound gives a rule that was enforced before nodes that became unready since, and one that joined
// meanwhile: it is not new to the rule any more when that is enforced.
func TestADryRunKeepsTheBound(t *testing.T) {
	half := intstr.FromString("50%")
	r := ruleOf("A")
	r.Spec.MaxTainted = &half
	c := newCluster(t, r)
	for _, name := range []string{"a", "b", "c", "d"} {
		c.decide(nil, nodeNamed(name, "True"))
	}
	r.Spec.DryRun, r.Generation = true, 4
	for _, name := range []string{"a", "b", "c", "d"} {
		n := c.nodes[name].DeepCopy()
		n.Status.Conditions[0].Status = "False"
		c.decide(nil, n)
	}
	c.decide(nil, nodeNamed("new", "False"))
	status := c.status(r)
	if *status.Nodes != (readinessv1alpha1.NodeCounts{Selected: 5, Held: 3, Spared: 2}) {
		t.Errorf("%+v", *status.Nodes)
	}
	if got := strings.Join(status.DryRunResults.NodesToTaint, " "); got != "a b c" || status.DryRunResults.TaintsToAdd != 3 {
		t.Errorf("would taint %s: %+v", got, *status.DryRunResults)
	}
	if bound := apimeta.FindStatusCondition(status.Conditions, ConditionAtBound); bound == nil || !strings.Contains(bound.Message, "2 nodes (d, new)") {
		t.Errorf("%+v", bound)
	}
	r.Spec.DryRun, r.Generation = false, 5
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &metav1.Time{Time: noon}}}
	for _, name := range []string{"a", "b", "c", "d", "new"} {
		c.decide(nil, c.nodes[name])
	}
	if enforced := c.status(r); enforced.Nodes.Held != 3 || enforced.Nodes.Spared != 2 {
		t.Errorf("enforced it does something else: %+v", *enforced.Nodes)
	}
}

func TestADryRunCountsEveryTaintOfARule(t *testing.T) {
	r := ruleOf("A")
	r.Spec.DryRun = true
	r.Spec.Taints = []readinessv1alpha1.TaintSpec{{Key: "r.example.com/second", Effect: "NoExecute"}, {Key: "r.example.com/third", Effect: "PreferNoSchedule"}}
	c := newCluster(t, r)
	c.decide(nil, nodeNamed("a", "False"), nodeNamed("b", ""))
	got := c.status(r).DryRunResults
	if got.TaintsToAdd != 6 || got.AffectedNodes != 2 || got.RiskyOperations != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTypesThatNoNodeHasAreNamed(t *testing.T) {
	r := ruleOf("A", "B")
	c := newCluster(t, r)
	c.decide(nil, nodeNamed("a", "False"))
	if got := c.status(r).UnseenConditionTypes; fmt.Sprint(got) != "[B]" {
		t.Errorf("unseen: %v", got)
	}
	elsewhere := nodeNamed("b", "")
	elsewhere.Labels = nil
	elsewhere.Status.Conditions = []corev1.NodeCondition{{Type: "B", Status: "False"}}
	c.decide(nil, elsewhere)
	if !c.standings.due(r.UID) {
		t.Error("a type that is seen for the first time makes no rule due")
	}
	if got := c.status(r).UnseenConditionTypes; len(got) != 0 {
		t.Errorf("a type that a node has that is not selected is unseen: %v", got)
	}
	elsewhere = c.nodes["b"].DeepCopy()
	elsewhere.Status.Conditions = nil
	c.decide(nil, elsewhere)
	if got := c.status(r).UnseenConditionTypes; len(got) != 0 {
		t.Errorf("a type that a node had is unseen: %v", got)
	}
}

// TestStatusIsBoundedWhateverTheFleet fills every part of a status with the longest of everything.
func TestStatusIsBoundedWhateverTheFleet(t *testing.T) {
	for _, dry := range []bool{false, true} {
		r := long(2, 1)
		r.Spec.DryRun = dry
		status := fullStatus(t, r)
		encoded, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) > 50<<10 {
			t.Errorf("dry run %v: %d bytes", dry, len(encoded))
		}
		t.Logf("dry run %v: %d bytes", dry, len(encoded))
		if status.Nodes.Selected != 5000 || status.Nodes.Held != 5000 {
			t.Errorf("dry run %v: %+v", dry, *status.Nodes)
		}
		if len(status.NodeEvaluations) == 0 || len(status.UnseenConditionTypes) == 0 || len(status.Conditions) < 5 {
			t.Errorf("%d evaluations, %d types, %d conditions: this is not full", len(status.NodeEvaluations), len(status.UnseenConditionTypes), len(status.Conditions))
		}
		if dry != (status.DryRunResults != nil) || dry == (len(status.FailedNodes) > 0) {
			t.Errorf("dry run %v: %d failed", dry, len(status.FailedNodes))
		}
	}
}

// long is a rule with so many of the longest conditions and objects.
func long(conditions, objects int) *apiRule {
	r := ruleOf()
	for i := range conditions {
		r.Spec.Conditions = append(r.Spec.Conditions, readinessv1alpha1.ConditionRequirement{Type: fmt.Sprintf("%s/%02d", strings.Repeat("c", 313), i), RequiredStatus: "True"})
	}
	for i := range objects {
		r.Spec.Objects = append(r.Spec.Objects, readinessv1alpha1.ObjectRequirement{Name: fmt.Sprintf("%s%02d", strings.Repeat("o", 61), i),
			DaemonSet: &readinessv1alpha1.DaemonSetOnNode{Namespace: strings.Repeat("s", 63), Name: strings.Repeat("d", 253)}})
	}
	return r
}

// fullStatus is that of a rule over 5,000 nodes with the longest names of which none fulfils it, half of them cannot be
// written to, and every check finds something.
func fullStatus(t *testing.T, r *apiRule) readinessv1alpha1.NodeReadinessRuleStatus {
	c := newCluster(t, r)
	c.memory.Objects = unknownObjects{}
	for i := range 5000 {
		var fault error
		if i%2 == 0 {
			fault = errors.New(strings.Repeat("<", 5000))
		}
		c.decide(fault, nodeNamed(fmt.Sprintf("%s-%04d", strings.Repeat("n", 248), i), ""))
	}
	var findings []Finding
	for _, s := range Statements {
		if s.Type != ConditionReady && s.Type != ConditionStalled {
			findings = append(findings, Finding{s.Reason, strings.Repeat("m", 5000)})
		}
	}
	return c.status(r, findings...)
}

// unknownObjects can say nothing about any object, at length.
type unknownObjects struct{}

func (unknownObjects) Require([]apiRule) {}
func (unknownObjects) Verdict(*corev1.Node, readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
	return corev1.ConditionUnknown, strings.Repeat("m", 5000)
}

// TestEvaluations gives what is shown of a held node whose condition and object fall short in some way.
func TestEvaluations(t *testing.T) {
	long := metav1.Duration{Duration: time.Minute}
	daemonSet := readinessv1alpha1.ObjectRequirement{Name: "driver", DaemonSet: &readinessv1alpha1.DaemonSetOnNode{Namespace: "gpu", Name: "driver"}}
	for _, tc := range []struct {
		name   string
		change func(*apiRule)
		// shows are the statuses of condition A, a second apart; empty for none. The heartbeat is always the same.
		shows  []corev1.ConditionStatus
		after  time.Duration // a last look, so long after the others
		want   readinessv1alpha1.ConditionResult
		object string
	}{
		{name: "a condition that is not there", shows: []corev1.ConditionStatus{""},
			want: readinessv1alpha1.ConditionResult{CurrentStatus: "Unknown", Missing: true}},
		{name: "a condition that is Unknown", shows: []corev1.ConditionStatus{"Unknown"},
			want: readinessv1alpha1.ConditionResult{CurrentStatus: "Unknown"}},
		{name: "a condition that is not there, with a default", shows: []corev1.ConditionStatus{""},
			change: func(r *apiRule) { r.Spec.Conditions[0].DefaultStatus = "False" },
			want:   readinessv1alpha1.ConditionResult{CurrentStatus: "Unknown", DefaultStatus: "False", Missing: true}},
		{name: "a reporter that gives no sign of life", shows: []corev1.ConditionStatus{"True"}, after: 2 * time.Minute,
			change: func(r *apiRule) { r.Spec.Conditions[0].MaxAge = &long },
			want:   readinessv1alpha1.ConditionResult{CurrentStatus: "True", Stale: true}},
		{name: "a condition that is as required not long enough", shows: []corev1.ConditionStatus{"False", "True"},
			change: func(r *apiRule) { r.Spec.Conditions[0].For = &readinessv1alpha1.Hold{Removing: &long} },
			want:   readinessv1alpha1.ConditionResult{CurrentStatus: "True", Pending: true}},
		{name: "an object that is not ready", shows: []corev1.ConditionStatus{"True"},
			change: func(r *apiRule) { r.Spec.Objects = append(r.Spec.Objects, daemonSet) },
			want:   readinessv1alpha1.ConditionResult{CurrentStatus: "True"}, object: "driver Unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ruleOf("A")
			if tc.change != nil {
				tc.change(r)
			}
			c := newCluster(t, r)
			c.memory.Objects = unknownObjects{}
			n := nodeNamed("a", "")
			for _, status := range tc.shows {
				n = n.DeepCopy()
				n.Status.Conditions = nil
				if status != "" {
					n.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: status}}
				}
				c.decide(nil, n)
				n, c.now = c.nodes["a"], c.now.Add(time.Second)
			}
			c.now = c.now.Add(tc.after)
			c.decide(nil, n)
			list := c.status(r).NodeEvaluations
			if len(list) != 1 || list[0].TaintStatus != readinessv1alpha1.TaintPresent {
				t.Fatalf("%+v", list)
			}
			tc.want.Type, tc.want.RequiredStatus = "A", "True"
			if got := list[0].ConditionResults[0]; got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			object := ""
			for _, o := range list[0].ObjectResults {
				object = o.Name + " " + string(o.Ready)
				if len(o.Message) == 0 || len(o.Message) > maxObjectMessage {
					t.Errorf("a message of %d bytes", len(o.Message))
				}
			}
			if object != tc.object {
				t.Errorf("object %q, want %q", object, tc.object)
			}
		})
	}
}
