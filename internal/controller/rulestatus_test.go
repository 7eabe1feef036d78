package controller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// TestRuleStatus runs one controller and reads what it says of rules, as people do.
func TestRuleStatus(t *testing.T) {
	w := newWorld(t)
	stop := w.run(t, testOptions(t))

	t.Run("kubectl waits until a rule is ready", func(t *testing.T) {
		w.node(t, "awaited", "awaited")
		w.rule(t, "awaited", "awaited")
		w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "nodereadinessrule/awaited")
		w.tainted(t, "awaited", "r.example.com/awaited=pending:NoSchedule") // so it is when the rule is
		w.editRule(t, "awaited", func(r *rule) { r.Spec.Suspend = true })
		w.kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Suspended`, "--timeout=120s", "nrr/awaited")
		if counts := w.getRule(t, "awaited").Status.Nodes; counts != nil {
			t.Errorf("a suspended rule counts %+v", *counts)
		}
		w.tainted(t, "awaited", "r.example.com/awaited=pending:NoSchedule")
	})

	t.Run("kubectl get shows what a rule does", func(t *testing.T) {
		for i := range 3 {
			w.node(t, fmt.Sprintf("shown-%d", i), "shown")
		}
		w.condition(t, "shown-1", network, "True")
		w.rule(t, "shown", "shown")
		w.status(t, "shown", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 3, Ready: 1, Held: 2})
		lines := strings.Split(w.kubectl(t, "get", "nrr", "shown"), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != "NAME MODE TAINT EFFECT SELECTED READY HELD STATE AGE" {
			t.Errorf("columns: %s", got)
		}
		if got := strings.Join(strings.Fields(lines[1])[:8], " "); got != "shown continuous r.example.com/shown NoSchedule 3 1 2 Enforced" {
			t.Errorf("values: %s", got)
		}
	})

	t.Run("rules that disagree about a taint say so, until they do not", func(t *testing.T) {
		w.node(t, "shared", "shared")
		w.condition(t, "shared", network, "True")
		for _, name := range []string{"shared-b", "shared-a"} {
			w.rule(t, name, "shared", func(r *rule) {
				r.Spec.Taint.Key, r.Spec.Taint.Value = "r.example.com/shared", name
				r.Spec.Conditions[0].Type = "example.com/" + name
			})
		}
		w.says(t, "shared-a", readiness.ConditionConflict, "it is that of rule shared-a")
		w.says(t, "shared-b", readiness.ConditionConflict, "with rule shared-a")
		w.event(t, "shared-b", "TaintShared", "EvaluateRule", "shared-a")
		w.tainted(t, "shared", "r.example.com/shared=shared-a:NoSchedule")
		w.editRule(t, "shared-b", func(r *rule) { r.Spec.Taint.Key = "r.example.com/own" })
		w.saysNothing(t, "shared-a", readiness.ConditionConflict)
		w.saysNothing(t, "shared-b", readiness.ConditionConflict)
	})

	t.Run("eviction is held back until it is acknowledged", func(t *testing.T) {
		w.node(t, "evict", "evict")
		w.rule(t, "evict", "evict", func(r *rule) { r.Spec.Taint.Effect = "NoExecute" })
		w.tainted(t, "evict", "r.example.com/evict=pending:NoSchedule")
		w.says(t, "evict", readiness.ConditionEvictionUnacknowledged, "r.example.com/evict would evict pods")
		w.event(t, "evict", "EvictionWithheld", "EvaluateRule", "r.example.com/evict")
		w.editRule(t, "evict", func(r *rule) { r.Spec.AllowEviction = true })
		w.tainted(t, "evict", "r.example.com/evict=pending:NoExecute")
		w.saysNothing(t, "evict", readiness.ConditionEvictionUnacknowledged)
	})

	t.Run("a rule at its bound says whom it spares", func(t *testing.T) {
		one := intstr.FromInt32(1)
		w.rule(t, "bound", "bound", func(r *rule) { r.Spec.MaxTainted = &one })
		for i := range 3 {
			w.node(t, fmt.Sprintf("bound-%d", i), "bound")
			w.condition(t, fmt.Sprintf("bound-%d", i), network, "True")
		}
		w.status(t, "bound", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 3, Ready: 3})
		for i := range 3 {
			w.condition(t, fmt.Sprintf("bound-%d", i), network, "False")
		}
		w.status(t, "bound", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 3, Held: 1, Spared: 2})
		w.says(t, "bound", readiness.ConditionAtBound, "not ready and spared: 2 nodes (bound-")
		w.event(t, "bound", "MaxTaintedReached", "EvaluateRule", "maxTainted is 1")
		w.condition(t, "bound-0", network, "True")
		w.condition(t, "bound-1", network, "True")
		w.saysNothing(t, "bound", readiness.ConditionAtBound)
	})

	t.Run("a condition type that no node has is named, until one has it", func(t *testing.T) {
		w.node(t, "unseen", "unseen")
		w.node(t, "elsewhere", "elsewhere")
		w.rule(t, "unseen", "unseen", func(r *rule) {
			r.Spec.Conditions = append(r.Spec.Conditions, readinessv1alpha1.ConditionRequirement{Type: "example.com/NetworkRdy", RequiredStatus: "True"})
		})
		unseen := func() string { return strings.Join(w.getRule(t, "unseen").Status.UnseenConditionTypes, " ") }
		w.eventually(t, "the wrong type is named", func() (bool, string) { return unseen() == "example.com/NetworkRdy", unseen() })
		w.event(t, "unseen", "ConditionTypeUnseen", "EvaluateRule", "example.com/NetworkRdy")
		w.condition(t, "elsewhere", "example.com/NetworkRdy", "False")
		w.eventually(t, "a type that any node has is not", func() (bool, string) { return unseen() == "", unseen() })
	})

	t.Run("a rule is told what was done on its account in few events", func(t *testing.T) {
		const many = 60
		w.rule(t, "summed", "summed")
		for i := range many {
			w.node(t, fmt.Sprintf("summed-%02d", i), "summed")
		}
		w.status(t, "summed", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: many, Held: many})
		w.eventually(t, "all of it is told", func() (bool, string) {
			nodes, events := 0, w.eventsAbout(t, w.getRule(t, "summed"), "TaintAdded")
			for _, e := range events {
				var n int
				if _, err := fmt.Sscanf(e.Note, "added taint r.example.com/summed:NoSchedule to %d node", &n); err != nil {
					t.Fatalf("%q: %v", e.Note, err)
				}
				nodes += n
			}
			if nodes == many && len(events) > many/4 {
				t.Errorf("%d events about %d nodes", len(events), nodes)
			}
			return nodes == many, fmt.Sprintf("%d nodes in %d events", nodes, len(events))
		})
		if described := w.kubectl(t, "describe", "nrr", "summed"); !strings.Contains(described, "TaintAdded") || !strings.Contains(described, "Enforced") {
			t.Errorf("kubectl describe shows no events:\n%s", described)
		}
		if got := w.eventsAbout(t, w.getNode(t, "summed-00"), "TaintAdded"); len(got) != 1 {
			t.Errorf("%d events on the node", len(got))
		}
	})

	t.Run("a restart writes no status and tells nothing again", func(t *testing.T) {
		w.quiet(t)
		stop()
		mark, err := w.Mark()
		if err != nil {
			t.Fatal(err)
		}
		w.run(t, testOptions(t))
		w.node(t, "late", "shown")
		w.tainted(t, "late", "r.example.com/shown=pending:NoSchedule") // it is at work
		w.status(t, "shown", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 4, Ready: 1, Held: 3})
		w.quiet(t)
		since, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range writesOf(since) {
			if request.Resource == "nodereadinessrules" && request.Name != "shown" {
				t.Errorf("a rule that nothing happened to was written: %+v", request)
			}
		}
	})
}

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// says waits for a condition of a rule with words in its message.
func (w *world) says(t *testing.T, rule, conditionType, words string) {
	t.Helper()
	w.eventually(t, "condition "+conditionType+" of rule "+rule, func() (bool, string) {
		c := apimeta.FindStatusCondition(w.getRule(t, rule).Status.Conditions, conditionType)
		if c == nil {
			return false, "none"
		}
		return c.Status == metav1.ConditionTrue && strings.Contains(c.Message, words), c.Message
	})
}

func (w *world) saysNothing(t *testing.T, rule, conditionType string) {
	t.Helper()
	w.eventually(t, "rule "+rule+" has no condition "+conditionType, func() (bool, string) {
		c := apimeta.FindStatusCondition(w.getRule(t, rule).Status.Conditions, conditionType)
		return c == nil, c.String()
	})
}

// eventsAbout gives the events about an object with a reason.
func (w *world) eventsAbout(t *testing.T, obj client.Object, reason string) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	if err := w.List(t.Context(), &list, client.InNamespace(corev1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	var about []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.UID == obj.GetUID() && e.Reason == reason {
			about = append(about, e)
		}
	}
	return about
}
