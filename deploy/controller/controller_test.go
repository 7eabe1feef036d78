// Package controller holds the manifests of the controller; the test applies them to a real API server. That its rights
// suffice is tested where the controller runs, in internal/controller.
package controller

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestManifests(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true})
	if err := c.Apply(t.Context(), "../crds"); err != nil { // kubectl auth can-i looks resources up
		t.Fatal(err)
	}
	kubectl := func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := c.Kubectl(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, way := range []struct {
		name string
		args []string
	}{
		{"on the client's side", nil},
		{"on the server's side", []string{"--server-side"}},
	} {
		t.Run("apply "+way.name, func(t *testing.T) {
			kubectl(t, append([]string{"apply", "--filename=."}, way.args...)...)
			kubectl(t, append([]string{"diff", "--filename=."}, way.args...)...) // fails when anything would change
			t.Run("rights", func(t *testing.T) { testRights(t, c) })
			kubectl(t, "delete", "--filename=.", "--wait")
		})
	}
	t.Run("the pod meets the restricted profile", func(t *testing.T) {
		kubectl(t, "apply", "--filename=.")
		kubectl(t, "label", "namespace", "fettle-system", "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
		kubectl(t, "create", "--namespace=fettle-system", "--dry-run=server", "--filename="+podFile(t))
	})
}

// testRights names what the controller must not be able to do, and a few things it must.
func testRights(t *testing.T, c *controlplane.ControlPlane) {
	await.That(t, "the role of what rules require is put together", func() bool {
		out, err := c.Kubectl(t.Context(), "auth", "can-i", "--as=system:serviceaccount:fettle-system:controller", "list", "pods", "--all-namespaces")
		return err == nil && strings.TrimSpace(out) == "yes"
	})
	for _, tc := range []struct {
		what string // verb resource[.group][/subresource][/name] [namespace]
		want bool
	}{
		{"patch nodes", true},
		{"patch nodes --subresource=status", true},
		{"update nodes", false},
		{"create nodes", false},
		{"delete nodes", false},
		{"create hosts.fettle.dev", true},
		{"patch hosts.fettle.dev", false},
		{"update hosts.fettle.dev", false},
		{"update nodereadinessrules.readiness.node.x-k8s.io --subresource=status", true},
		{"create nodereadinessrules.readiness.node.x-k8s.io", false},
		{"delete nodereadinessrules.readiness.node.x-k8s.io", false},
		{"list leases.coordination.k8s.io --namespace=fettle-node-lease", true},
		{"update leases.coordination.k8s.io --namespace=fettle-node-lease", false},
		{"update leases.coordination.k8s.io/fettle-controller --namespace=fettle-system", true},
		{"update leases.coordination.k8s.io/other --namespace=fettle-system", false},
		{"update leases.coordination.k8s.io/fettle-controller-canary --namespace=fettle-node-lease", true},
		{"delete leases.coordination.k8s.io --namespace=fettle-node-lease", false},
		{"list leases.coordination.k8s.io --namespace=kube-node-lease", false},
		{"patch fleetpolicies.fettle.dev --subresource=status", true},
		{"patch fleetpolicies.fettle.dev", false},
		{"create events.events.k8s.io --namespace=default", true},
		{"create events.events.k8s.io --namespace=kube-system", false},
		{"get namespaces/fettle-system", true},
		{"create namespaces", false},
		{"list daemonsets.apps --all-namespaces", true},
		{"patch daemonsets.apps --all-namespaces", false},
		{"watch daemonsets.apps --all-namespaces", true},
		{"list controllerrevisions.apps --all-namespaces", true},
		{"list pods --all-namespaces", true},
		{"delete pods --all-namespaces", false},
		{"get pods --all-namespaces", false},
		{"list configmaps --all-namespaces", false},
		{"get secrets --namespace=fettle-system", false},
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:fettle-system:controller"}, strings.Fields(tc.what)...)
		out, err := c.Kubectl(t.Context(), args...)
		switch answer := strings.TrimSpace(out); {
		case answer != "yes" && answer != "no": // "no" comes with exit status 1
			t.Errorf("%s: answer %q, error %v", tc.what, out, err)
		case (answer == "yes") != tc.want:
			t.Errorf("the controller's right to %s: %s", tc.what, answer)
		}
	}
}

// podFile writes a pod as the Deployment makes it.
func podFile(t *testing.T) string {
	manifest, err := os.ReadFile("20-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(manifest, &deployment); err != nil {
		t.Fatal(err)
	}
	return file(t, corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "controller"},
		Spec:       deployment.Spec.Template.Spec,
	})
}

// file writes an object for kubectl.
func file(t *testing.T, object any) string {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "object.json")
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
