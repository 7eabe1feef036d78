package controller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/rulecheck"
	"github.com/fettle-dev/fettle/test/await"
)

// TestRuleChecks lets rules say what their taints would keep away, with the rights of the controller's ServiceAccount.
func TestRuleChecks(t *testing.T) {
	w := newWorld(t)
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/daemonset/30-daemonset.yaml"); err != nil {
		t.Fatal(err)
	}
	w.run(t, testOptions(t))
	says := func(t *testing.T, rule, conditionType, reason string) {
		t.Helper()
		await.That(t, "rule "+rule+" says "+reason, func() bool {
			c := apimeta.FindStatusCondition(w.getRule(t, rule).Status.Conditions, conditionType)
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason
		})
	}
	saysNothing := func(t *testing.T, rule, conditionType string) {
		t.Helper()
		await.That(t, "rule "+rule+" says nothing of "+conditionType, func() bool {
			r := w.getRule(t, rule)
			return r.Status.ObservedGeneration == r.Generation && apimeta.FindStatusCondition(r.Status.Conditions, conditionType) == nil
		})
	}

	t.Run("a rule warns of a reporter that does not tolerate it, until it does", func(t *testing.T) {
		labels := map[string]string{"app": "npd"}
		ds := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "npd", Namespace: "kube-system"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "npd", Image: "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"}}},
				},
			},
		}
		if err := w.Create(t.Context(), ds); err != nil {
			t.Fatal(err)
		}
		w.rule(t, "kernel", "kernel", func(r *rule) { r.Spec.Conditions[0].Type = "KernelDeadlock" })
		says(t, "kernel", readiness.ConditionReporterRepelled, readiness.ReasonTaintNotTolerated)

		patch := func(text string) {
			if err := w.Patch(t.Context(), ds.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
				t.Fatal(err)
			}
		}
		patch(`{"spec":{"template":{"spec":{"tolerations":[{"key":"r.example.com/kernel","operator":"Exists"}]}}}}`)
		saysNothing(t, "kernel", readiness.ConditionReporterRepelled)

		patch(`{"metadata":{"annotations":{"` + rulecheck.ReportsAnnotation + `":"example.com/Network"}}}`)
		w.rule(t, "declared", "kernel")
		says(t, "declared", readiness.ConditionReporterRepelled, readiness.ReasonTaintNotTolerated)
		if err := w.Delete(t.Context(), ds); err != nil {
			t.Fatal(err)
		}
		saysNothing(t, "declared", readiness.ConditionReporterRepelled)
	})

	t.Run("the agent tolerates every rule that waits for it", func(t *testing.T) {
		w.rule(t, "agent", "agent", func(r *rule) { r.Spec.Conditions[0].Type = "fettle.dev/NetworkReady" })
		says(t, "agent", readiness.ConditionAutoscalerUnaware, readiness.ReasonUnknownToAutoscalers)
		saysNothing(t, "agent", readiness.ConditionReporterRepelled)
	})

	t.Run("a taint that cluster-autoscaler knows needs no words", func(t *testing.T) {
		w.rule(t, "startup", "startup", func(r *rule) { r.Spec.Taint.Key = "startup-taint.cluster-autoscaler.kubernetes.io/x" })
		saysNothing(t, "startup", readiness.ConditionAutoscalerUnaware)
	})
}
