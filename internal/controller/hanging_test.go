package controller

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// hangingKind defines a kind of which version v2 accepts requests and never answers them, as its conversion webhook does not,
// and makes an object "a" of it.
func (w *world) hangingKind(t *testing.T) {
	t.Helper()
	mended := make(chan struct{})
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-mended:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hook.Close)
	t.Cleanup(func() { close(mended) })
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	w.manifest(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: licenses.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: License, plural: licenses, singular: license, listKind: LicenseList}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}
  versions:
  - {name: v1, served: true, storage: true, schema: &schema {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: *schema}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-licenses, labels: {fettle.dev/aggregate-to-controller: "true"}}
rules: [{apiGroups: [example.com], resources: [licenses], verbs: [list, watch]}]
`, hook.URL, base64.StdEncoding.EncodeToString(authority)))
	w.manifest(t, "{apiVersion: example.com/v1, kind: License, metadata: {name: a}}")
}

// TestAnObjectAPIThatHangs: only the rules that need it wait, for a while; a ready node is not held meanwhile.
func TestAnObjectAPIThatHangs(t *testing.T) {
	w := newWorld(t)
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/controller/15-objects.yaml"); err != nil {
		t.Fatal(err)
	}
	w.hangingKind(t)
	stop := w.run(t, testOptions(t))
	const waits, other, late = "r.example.com/waits", "r.example.com/other", "r.example.com/late"
	w.node(t, "a", "hanging")
	versions := w.versions(t, "a")
	// before reads versions up to the first with a taint, and demands that none had another one.
	before := func(key, not string) {
		t.Helper()
		for _, n := range until(t, versions, "node a has "+key, taintedWith(key)) {
			if taintedWith(not)(n) {
				t.Fatalf("%s came before %s: %s", not, key, taintsOf(n))
			}
		}
	}

	w.rule(t, "waits", "hanging", requires(readinessv1alpha1.ObjectRequirement{
		Name: "license", Object: &readinessv1alpha1.ReadyObject{APIVersion: "example.com/v2", Kind: "License", Name: "a"},
	}))
	w.rule(t, "other", "hanging")
	before(other, waits)
	w.editRule(t, "other", func(r *rule) { r.Spec.Suspend = true })
	w.eventually(t, "the other rule is suspended", func() (bool, string) {
		r := w.getRule(t, "other")
		return r.Status.ObservedGeneration == r.Generation, fmt.Sprint(r.Status.Conditions)
	})
	if n := w.getNode(t, "a"); taintedWith(waits)(n) {
		t.Errorf("the suspension came after the wait for the object: %s", taintsOf(n))
	}
	until(t, versions, "the wait for the object ends, and it is not ready", taintedWith(waits))
	w.saysOfObject(t, "waits", "a", corev1.ConditionUnknown, "License a: ")
	w.status(t, "waits", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 1, Held: 1})

	// A restart. What was held stays held, and nothing else waits.
	stop()
	w.node(t, "b", "hanging")
	versions = w.versions(t, "b")
	w.rule(t, "late", "hanging")
	w.run(t, testOptions(t))
	before(late, waits)
	if n := w.getNode(t, "a"); !taintedWith(waits)(n) {
		t.Errorf("the restart let a node go: %s", taintsOf(n))
	}
	until(t, versions, "the wait for the object ends, and it is not ready", taintedWith(waits))
}
