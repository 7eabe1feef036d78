package controller

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// TestUpstream holds what users of the node readiness controller rely on: its manifests, the taints that follow, its events
// and its annotations. Messages of its schema are in api/readiness/v1alpha1; what differs is in
// docs/reference/compatibility.md.
func TestUpstream(t *testing.T) {
	w := newWorld(t)
	w.kubectl(t, "apply", "--filename=testdata/upstream/rules.yaml")
	w.kubectl(t, "apply", "--server-side", "--force-conflicts", "--filename=testdata/upstream/rules.yaml")
	w.run(t, testOptions(t))
	node := func(t *testing.T, name, group string, taints ...corev1.Taint) *corev1.Node {
		t.Helper()
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"upstream": group}},
			Spec:       corev1.NodeSpec{Taints: taints},
		}
		if err := w.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const calico, network = "projectcalico.org/CalicoReady", "readiness.k8s.io/projectcalico.org=pending:NoSchedule"

	t.Run("a continuous rule adds and removes, with its events", func(t *testing.T) {
		node(t, "continuous", "network")
		w.tainted(t, "continuous", network)
		w.event(t, "continuous", "TaintAdded", "AddTaint", "readiness.k8s.io/projectcalico.org:NoSchedule")
		w.condition(t, "continuous", calico, "True")
		w.tainted(t, "continuous")
		w.event(t, "continuous", "TaintRemoved", "RemoveTaint", "readiness.k8s.io/projectcalico.org:NoSchedule")
		w.condition(t, "continuous", calico, "False")
		w.tainted(t, "continuous", network)
	})

	t.Run("a taint that was removed by hand comes back, and one that was added by hand goes", func(t *testing.T) {
		n := node(t, "by-hand", "network")
		w.tainted(t, "by-hand", network)
		versions := w.versions(t, "by-hand")
		w.patch(t, n, `{"spec":{"taints":null}}`)
		until(t, versions, "the taint is gone", func(n *corev1.Node) bool { return taintsOf(n) == "" })
		w.tainted(t, "by-hand", network)
		w.condition(t, "by-hand", calico, "True")
		w.tainted(t, "by-hand")
		versions = w.versions(t, "by-hand")
		w.patch(t, n, `{"spec":{"taints":[{"key":"readiness.k8s.io/projectcalico.org","value":"pending","effect":"NoSchedule"}]}}`)
		until(t, versions, "the taint is there", func(n *corev1.Node) bool { return taintsOf(n) == network })
		w.tainted(t, "by-hand")
	})

	t.Run("a taint of the kubelet's registration is adopted, told once, and removed", func(t *testing.T) {
		node(t, "registered", "network", corev1.Taint{Key: "readiness.k8s.io/projectcalico.org", Value: "pending", Effect: "NoSchedule"})
		w.event(t, "registered", "TaintAdopted", "AdoptTaint", "readiness.k8s.io/projectcalico.org:NoSchedule")
		w.condition(t, "registered", calico, "False")
		w.condition(t, "registered", calico, "Unknown")
		w.quiet(t)
		if got := w.eventsAbout(t, w.getNode(t, "registered"), "TaintAdopted"); len(got) != 1 || got[0].Type != corev1.EventTypeNormal {
			t.Errorf("%d events", len(got))
		}
		w.condition(t, "registered", calico, "True")
		w.tainted(t, "registered")
	})

	t.Run("a bootstrap is marked in the annotation with the rule's UID and name", func(t *testing.T) {
		const taint = "readiness.k8s.io/bootstrap=pending:NoSchedule"
		n := node(t, "bootstrap", "bootstrap")
		w.condition(t, "bootstrap", "example.com/ImagesReady", "True")
		w.tainted(t, "bootstrap", taint)
		w.condition(t, "bootstrap", "example.com/DriverReady", "True")
		w.tainted(t, "bootstrap")
		marker := w.getNode(t, "bootstrap").Annotations["readiness.k8s.io/bootstrap-completed-"+string(w.getRule(t, "upstream-bootstrap").UID)]
		var value map[string]string
		if err := json.Unmarshal([]byte(marker), &value); err != nil || value["rule-name"] != "upstream-bootstrap" {
			t.Errorf("marker %q: %v", marker, err)
		}
		w.condition(t, "bootstrap", "example.com/DriverReady", "False")
		w.quiet(t)
		w.tainted(t, "bootstrap")

		if err := w.Delete(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		node(t, "bootstrap", "bootstrap") // recreated under its name: a node that has passed nothing
		w.tainted(t, "bootstrap", taint)
	})

	t.Run("a node that is ready already is marked and never tainted", func(t *testing.T) {
		n := node(t, "grandfather", "elsewhere")
		w.condition(t, "grandfather", "example.com/ImagesReady", "True")
		w.condition(t, "grandfather", "example.com/DriverReady", "True")
		versions := w.versions(t, "grandfather")
		w.patch(t, n, `{"metadata":{"labels":{"upstream":"bootstrap"}}}`)
		marker := "readiness.k8s.io/bootstrap-completed-" + string(w.getRule(t, "upstream-bootstrap").UID)
		for _, n := range until(t, versions, "the marker", func(n *corev1.Node) bool { return n.Annotations[marker] != "" }) {
			if got := taintsOf(n); got != "" {
				t.Errorf("tainted with %s", got)
			}
		}
	})

	t.Run("a marker of early versions, by the rule's name, still counts", func(t *testing.T) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "legacy", Labels: map[string]string{"upstream": "bootstrap"},
			Annotations: map[string]string{"readiness.k8s.io/bootstrap-completed-upstream-bootstrap": "true"}}}
		if err := w.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		marker := "readiness.k8s.io/bootstrap-completed-" + string(w.getRule(t, "upstream-bootstrap").UID)
		w.eventually(t, "the marker moves to the rule's UID", func() (bool, string) {
			annotations := w.getNode(t, "legacy").Annotations
			return annotations[marker] != "" && annotations["readiness.k8s.io/bootstrap-completed-upstream-bootstrap"] == "", "not yet"
		})
		w.tainted(t, "legacy")
		if got := w.eventsAbout(t, w.getNode(t, "legacy"), "BootstrapCompleted"); len(got) > 0 {
			t.Errorf("a bootstrap of before is told as new: %s", got[0].Note)
		}
	})

	t.Run("a condition that is absent counts as its default, else as Unknown", func(t *testing.T) {
		node(t, "problem", "problem")
		w.eventually(t, "the rule has looked at the node", func() (bool, string) {
			counts := w.getRule(t, "upstream-problem").Status.Nodes
			return counts != nil && *counts == readinessv1alpha1.NodeCounts{Selected: 1, Ready: 1}, "not yet"
		})
		w.condition(t, "problem", "MaintenanceRequired", "True")
		w.tainted(t, "problem", "readiness.k8s.io/maintenance=:NoSchedule")
		w.condition(t, "problem", "MaintenanceRequired", "False")
		w.tainted(t, "problem")

		node(t, "absent", "absent") // Quarantined is Unknown, and anyOf is content with that
		w.status(t, "upstream-absent", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 1, Ready: 1})
		w.condition(t, "absent", "example.com/Quarantined", "True")
		w.tainted(t, "absent", "readiness.k8s.io/falco.org=:PreferNoSchedule")
		w.condition(t, "absent", "falco.org/FalcoNotReady", "False")
		w.tainted(t, "absent")
	})

	t.Run("a dry run counts and touches nothing", func(t *testing.T) {
		node(t, "dry-run", "dry-run")
		w.eventually(t, "the results", func() (bool, string) {
			results := w.getRule(t, "upstream-dry-run").Status.DryRunResults
			return results != nil && results.AffectedNodes == 1 && results.TaintsToAdd == 1 && results.TaintsToRemove == 0 &&
				results.RiskyOperations == 1 && results.Summary != "", "not yet"
		})
		w.tainted(t, "dry-run")
	})

	t.Run("status has upstream's fields", func(t *testing.T) {
		w.eventually(t, "status of the network rule", func() (bool, string) {
			r := w.getRule(t, "upstream-network")
			held := ""
			for _, e := range r.Status.NodeEvaluations {
				if e.NodeName == "continuous" && e.TaintStatus == "Present" && !e.LastEvaluationTime.IsZero() && len(e.ConditionResults) == 1 {
					held = string(e.ConditionResults[0].CurrentStatus + " for " + e.ConditionResults[0].RequiredStatus)
				}
			}
			applied := strings.Join(r.Status.AppliedNodes, " ")
			return held == "False for True" && applied == "by-hand continuous registered" && r.Status.ObservedGeneration == r.Generation, held + ", " + applied
		})
	})

	t.Run("rules are found by upstream's short name and fields", func(t *testing.T) {
		got := w.kubectl(t, "get", "nrr", "--field-selector=spec.enforcementMode=bootstrap-only,spec.taint.key=readiness.k8s.io/bootstrap,spec.dryRun=false", "--output=name")
		if strings.TrimSpace(got) != "nodereadinessrule.readiness.node.x-k8s.io/upstream-bootstrap" {
			t.Errorf("found %q", got)
		}
	})

	t.Run("a rule with upstream's finalizer lets its nodes go, and is gone", func(t *testing.T) {
		node(t, "finalized", "finalized")
		w.tainted(t, "finalized", "readiness.k8s.io/storage=:NoSchedule")
		r := w.getRule(t, "upstream-finalized")
		if err := w.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.tainted(t, "finalized")
		w.eventually(t, "the rule is gone", func() (bool, string) {
			return apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(r), &rule{})), "still there"
		})
	})
}
