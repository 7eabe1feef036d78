package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/test/controlplane"
)

type rule = readinessv1alpha1.NodeReadinessRule

const network = "example.com/Network"

func bootstrapOnly(r *rule) { r.Spec.EnforcementMode = readinessv1alpha1.EnforcementModeBootstrapOnly }
func dryRun(r *rule)        { r.Spec.DryRun = true }
func taintedWith(key string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return strings.Contains(taintsOf(n), key) }
}

// TestRules runs one controller, with the rights of its ServiceAccount, over nodes of one pool for each case.
func TestRules(t *testing.T) {
	w := newWorld(t)
	w.run(t, testOptions(t))

	t.Run("a node is held while its condition is not as required", func(t *testing.T) {
		w.node(t, "held", "held")
		w.rule(t, "held", "held")
		w.tainted(t, "held", "r.example.com/held=pending:NoSchedule")
		w.event(t, "held", "TaintAdded", "AddTaint", "rule held")
		w.status(t, "held", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 1, Held: 1})

		w.condition(t, "held", network, "True")
		w.tainted(t, "held")
		if record, there := w.getNode(t, "held").Annotations[taints.RecordAnnotation]; there {
			t.Errorf("the record is still there: %s", record)
		}
		w.event(t, "held", "TaintRemoved", "RemoveTaint", "rule held")
		w.status(t, "held", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 1, Ready: 1})

		w.condition(t, "held", network, "Unknown")
		w.tainted(t, "held", "r.example.com/held=pending:NoSchedule")
	})

	t.Run("a rule tells which nodes it holds, and why", func(t *testing.T) {
		w.node(t, "told-1", "told")
		w.node(t, "told-2", "told")
		w.condition(t, "told-2", network, "False")
		w.rule(t, "told", "told")
		w.status(t, "told", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 2, Held: 2})
		w.eventually(t, "evaluations of both nodes", func() (bool, string) {
			status := w.getRule(t, "told").Status
			if len(status.NodeEvaluations) != 2 || len(status.AppliedNodes) != 2 {
				return false, "too few"
			}
			first, second := status.NodeEvaluations[0], status.NodeEvaluations[1]
			if !first.ConditionResults[0].Missing || second.ConditionResults[0].CurrentStatus != "False" {
				t.Fatalf("results: %+v", status.NodeEvaluations)
			}
			return first.TaintStatus == "Present" && second.TaintStatus == "Present", string(first.TaintStatus + second.TaintStatus)
		})
	})

	t.Run("a taint that the kubelet registered with is adopted, and removed when the node is ready", func(t *testing.T) {
		registered := corev1.Taint{Key: "r.example.com/adopted", Value: "pending", Effect: "NoSchedule"}
		w.rule(t, "adopted", "adopted")
		w.node(t, "adopted", "adopted", registered)
		w.event(t, "adopted", "TaintAdopted", "AdoptTaint", "rule adopted")
		w.condition(t, "adopted", network, "True")
		w.tainted(t, "adopted")
	})

	t.Run("a bootstrap is marked in the write that unties the node", func(t *testing.T) {
		w.node(t, "bootstrap", "bootstrap")
		r := w.rule(t, "bootstrap", "bootstrap", bootstrapOnly)
		w.tainted(t, "bootstrap", "r.example.com/bootstrap=pending:NoSchedule")
		versions := w.versions(t, "bootstrap")
		w.condition(t, "bootstrap", network, "True")
		marker := readinessv1alpha1.BootstrapMarkerPrefix + string(r.UID)
		marked := func(n *corev1.Node) bool { _, ok := n.Annotations[marker]; return ok }
		for _, n := range until(t, versions, "the marker", marked) {
			if marked(n) == taintedWith("bootstrap")(n) {
				t.Errorf("a version is neither held nor marked, or both: %s", describe([]*corev1.Node{n}))
			}
		}
		if got := w.getNode(t, "bootstrap").Annotations[marker]; got != `{"rule-name":"bootstrap"}` {
			t.Errorf("marker: %s", got)
		}

		w.condition(t, "bootstrap", network, "False")
		byHand := `{"spec":{"taints":[{"key":"r.example.com/bootstrap","effect":"NoSchedule"}]}}`
		w.patch(t, w.getNode(t, "bootstrap"), byHand)
		w.quiet(t)
		w.tainted(t, "bootstrap", "r.example.com/bootstrap=:NoSchedule")

		if err := w.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.eventually(t, "the marker goes with the rule", func() (bool, string) { return !marked(w.getNode(t, "bootstrap")), marker })
		w.tainted(t, "bootstrap", "r.example.com/bootstrap=:NoSchedule")
	})

	t.Run("an edited taint migrates without a moment in between", func(t *testing.T) {
		w.node(t, "edited", "edited")
		w.rule(t, "edited", "edited")
		w.tainted(t, "edited", "r.example.com/edited=pending:NoSchedule")
		versions := w.versions(t, "edited")
		w.editRule(t, "edited", func(r *rule) {
			r.Spec.Taint.Key, r.Spec.Taint.Effect, r.Spec.AllowEviction = "r.example.com/moved", "NoExecute", true
		})
		seen := until(t, versions, "the new taint", taintedWith("moved"))
		for _, n := range seen[:len(seen)-1] {
			if !taintedWith("r.example.com/edited")(n) {
				t.Errorf("a version is without both: %s", describe(seen))
			}
		}
		w.tainted(t, "edited", "r.example.com/moved=pending:NoExecute")
		for _, taint := range w.getNode(t, "edited").Spec.Taints {
			if taint.Key == "r.example.com/moved" && taint.TimeAdded == nil {
				t.Error("a NoExecute taint without timeAdded")
			}
		}
	})

	t.Run("a deleted rule lets its nodes go", func(t *testing.T) {
		w.node(t, "deleted", "deleted")
		r := w.rule(t, "deleted", "deleted")
		w.tainted(t, "deleted", "r.example.com/deleted=pending:NoSchedule")
		if err := w.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.tainted(t, "deleted")
	})

	t.Run("a rule with the upstream finalizer lets its nodes go and is gone", func(t *testing.T) {
		w.node(t, "finalized", "finalized")
		r := w.rule(t, "finalized", "finalized", func(r *rule) { r.Finalizers = []string{"readiness.node.x-k8s.io/cleanup-taints"} })
		w.tainted(t, "finalized", "r.example.com/finalized=pending:NoSchedule")
		if err := w.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.tainted(t, "finalized")
		w.eventually(t, "the rule is gone", func() (bool, string) {
			err := w.Get(t.Context(), client.ObjectKeyFromObject(r), &rule{})
			return apierrors.IsNotFound(err), "still there"
		})
	})

	t.Run("a node relabelled out of a rule is let go, and held again when it comes back", func(t *testing.T) {
		n := w.node(t, "relabelled", "relabelled")
		w.rule(t, "relabelled", "relabelled")
		w.tainted(t, "relabelled", "r.example.com/relabelled=pending:NoSchedule")
		w.patch(t, n, `{"metadata":{"labels":{"pool":"elsewhere"}}}`)
		w.tainted(t, "relabelled")
		w.patch(t, n, `{"metadata":{"labels":{"pool":"relabelled"}}}`)
		w.tainted(t, "relabelled", "r.example.com/relabelled=pending:NoSchedule")
	})

	t.Run("a dry run changes nothing and tells what it would do", func(t *testing.T) {
		w.node(t, "dry-1", "dry")
		w.node(t, "dry-2", "dry")
		w.node(t, "dry-3", "dry", corev1.Taint{Key: "r.example.com/dry", Effect: "NoSchedule"})
		w.condition(t, "dry-2", network, "False")
		w.condition(t, "dry-3", network, "True")
		w.rule(t, "dry", "dry", dryRun)
		w.dryRun(t, "dry", readinessv1alpha1.DryRunResults{AffectedNodes: 3, TaintsToAdd: 2, TaintsToRemove: 1, RiskyOperations: 1,
			NodesToTaint: []string{"dry-1", "dry-2"}, NodesToUntaint: []string{"dry-3"},
			MissingConditions: []readinessv1alpha1.MissingCondition{{Type: network, Count: 1, Nodes: []string{"dry-1"}}},
			Summary:           "would taint 2: dry-1, dry-2; would untaint 1: dry-3; example.com/Network is missing on 1: dry-1"})
		w.condition(t, "dry-1", network, "True")
		w.dryRun(t, "dry", readinessv1alpha1.DryRunResults{AffectedNodes: 2, TaintsToAdd: 1, TaintsToRemove: 1,
			NodesToTaint: []string{"dry-2"}, NodesToUntaint: []string{"dry-3"},
			Summary: "would taint 1: dry-2; would untaint 1: dry-3"})
		w.status(t, "dry", "True", readiness.ReasonDryRun, readinessv1alpha1.NodeCounts{Selected: 3, Ready: 2, Held: 1})
		w.tainted(t, "dry-2")
		w.tainted(t, "dry-3", "r.example.com/dry=:NoSchedule")

		w.editRule(t, "dry", func(r *rule) { r.Spec.DryRun = false })
		w.tainted(t, "dry-2", "r.example.com/dry=pending:NoSchedule")
		w.tainted(t, "dry-3")
		w.eventually(t, "dryRunResults are gone", func() (bool, string) { return w.getRule(t, "dry").Status.DryRunResults == nil, "still there" })

		w.editRule(t, "dry", dryRun)
		w.status(t, "dry", "True", readiness.ReasonDryRun, readinessv1alpha1.NodeCounts{Selected: 3, Ready: 2, Held: 1})
		w.condition(t, "dry-2", network, "True")
		w.dryRun(t, "dry", readinessv1alpha1.DryRunResults{AffectedNodes: 1, TaintsToRemove: 1, NodesToUntaint: []string{"dry-2"}, Summary: "would untaint 1: dry-2"})
		w.tainted(t, "dry-2", "r.example.com/dry=pending:NoSchedule")
	})

	t.Run("foreign taints stay while another writer changes them", func(t *testing.T) { testForeignWriter(t, w) })
	t.Run("a node whose taints cannot be written is named", func(t *testing.T) { testFailingWrites(t, w) })

	t.Run("the controller is quiet when nothing happens", func(t *testing.T) {
		mark := w.quiet(t)
		time.Sleep(5 * time.Second) // what is asserted is that nothing happens
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		beyondCanary := func(r controlplane.Request) bool { return r.Verb != "watch" && r.Resource != "leases" }
		if mine := requests.By(controllerUser).Where(beyondCanary); len(mine) > 0 {
			t.Errorf("requests:\n%s", mine)
		}
	})
}

// testForeignWriter lets somebody else replace a foreign taint as fast as possible while the controller taints and
// unties the same node, until the controller has been overtaken at least once.
func testForeignWriter(t *testing.T, w *world) {
	w.node(t, "contested", "contested")
	w.rule(t, "contested", "contested")
	w.tainted(t, "contested", "r.example.com/contested=pending:NoSchedule")
	mark, err := w.Mark()
	if err != nil {
		t.Fatal(err)
	}
	stop, last := make(chan struct{}), make(chan string)
	go func() {
		value := ""
		for i := 0; ; i++ {
			select {
			case <-stop:
				last <- value
				return
			default:
			}
			n := &corev1.Node{}
			if err := w.Get(t.Context(), client.ObjectKey{Name: "contested"}, n); err != nil {
				continue
			}
			next := time.Now().Format("150405.000000")
			kept := []corev1.Taint{{Key: "foreign.example.com/a", Value: next, Effect: "NoSchedule"}}
			for _, taint := range n.Spec.Taints {
				if taint.Key != "foreign.example.com/a" {
					kept = append(kept, taint)
				}
			}
			n.Spec.Taints = kept
			if w.Update(t.Context(), n) == nil { // with resourceVersion: it never overwrites the controller either
				value = next
			}
		}
	}()
	overtaken := func() int {
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Error(err)
			return 1
		}
		return len(requests.By(controllerUser).Where(func(r controlplane.Request) bool {
			return r.Resource == "nodes" && r.Name == "contested" && r.Verb == "patch" && r.Code == 422
		}))
	}
	flips := 0
	for deadline := time.Now().Add(30 * time.Second); overtaken() == 0 && time.Now().Before(deadline); flips += 2 {
		w.condition(t, "contested", network, "True")
		w.eventually(t, "the node is untied", func() (bool, string) {
			n := w.getNode(t, "contested")
			return !taintedWith("r.example.com/contested")(n), taintsOf(n)
		})
		w.condition(t, "contested", network, "False")
		w.eventually(t, "the node is held", func() (bool, string) {
			n := w.getNode(t, "contested")
			return taintedWith("r.example.com/contested")(n), taintsOf(n)
		})
	}
	close(stop)
	value := <-last
	w.tainted(t, "contested", "foreign.example.com/a="+value+":NoSchedule", "r.example.com/contested=pending:NoSchedule")
	if n := overtaken(); n == 0 {
		t.Errorf("the controller was never overtaken in %d changes; the test proved nothing", flips)
	} else {
		t.Logf("overtaken %d times in %d changes", n, flips)
	}
}

// testFailingWrites lets an admission policy refuse the taint on one node.
func testFailingWrites(t *testing.T, w *world) {
	policy, err := w.Kubectl(t.Context(), "apply", "--filename=testdata/refuse-taint.yaml", "--output=name")
	if err != nil {
		t.Fatal(err)
	}
	refused := w.node(t, "refused", "refused")
	w.eventually(t, "the policy is in force", func() (bool, string) {
		err := w.Patch(t.Context(), refused.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"taints":[{"key":"r.example.com/refused","effect":"NoSchedule"}]}}`)), client.DryRunAll)
		return err != nil, "accepted"
	})
	w.node(t, "taken", "refused")
	w.rule(t, "refused", "refused")
	w.tainted(t, "taken", "r.example.com/refused=pending:NoSchedule")
	w.status(t, "refused", "False", readiness.ReasonWritesFailing, readinessv1alpha1.NodeCounts{Selected: 2, Held: 2, Failed: 1})
	failed := w.getRule(t, "refused").Status.FailedNodes
	if len(failed) != 1 || failed[0].NodeName != "refused" || !strings.Contains(failed[0].Message, "this node takes no such taint") {
		t.Errorf("failed nodes: %+v", failed)
	}
	if _, err := w.Kubectl(t.Context(), append([]string{"delete"}, strings.Fields(policy)...)...); err != nil {
		t.Fatal(err)
	}
	w.tainted(t, "refused", "r.example.com/refused=pending:NoSchedule")
	w.status(t, "refused", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 2, Held: 2})
	w.event(t, "refused", "WriteFailed", "WriteNode", "this node takes no such taint")
	w.event(t, "refused", "WritesFailing", "EvaluateRule", "1 node (refused)")
	w.event(t, "refused", "TaintAdded", "AddTaint", "added taint r.example.com/refused:NoSchedule to 1 node: refused") // told last
}

// event waits for an event about a node, or a rule.
func (w *world) event(t *testing.T, node, reason, action, note string) {
	t.Helper()
	w.eventually(t, "event "+reason+" about node "+node, func() (bool, string) {
		var list eventsv1.EventList
		if err := w.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Regarding.Name == node && e.Regarding.UID != "" && e.Reason == reason && e.Action == action && strings.Contains(e.Note, note) {
				return true, ""
			}
		}
		return false, "none"
	})
}

// status waits for a rule's condition and counts.
func (w *world) status(t *testing.T, name string, ready metav1.ConditionStatus, reason string, counts readinessv1alpha1.NodeCounts) {
	t.Helper()
	w.eventually(t, "status of rule "+name, func() (bool, string) {
		r := w.getRule(t, name)
		c := apimeta.FindStatusCondition(r.Status.Conditions, readiness.ConditionReady)
		if c == nil || r.Status.Nodes == nil {
			return false, "none"
		}
		holds := c.Status == ready && c.Reason == reason && *r.Status.Nodes == counts &&
			c.ObservedGeneration == r.Generation && r.Status.ObservedGeneration == r.Generation
		return holds, c.String() + " " + describeCounts(*r.Status.Nodes)
	})
}

func (w *world) dryRun(t *testing.T, name string, want readinessv1alpha1.DryRunResults) {
	t.Helper()
	w.eventually(t, "dryRunResults of rule "+name, func() (bool, string) {
		got := w.getRule(t, name).Status.DryRunResults
		if got == nil {
			return false, "none"
		}
		return equality.Semantic.DeepEqual(*got, want), got.Summary
	})
}
