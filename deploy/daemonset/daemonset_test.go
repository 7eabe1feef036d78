// Package daemonset holds the manifests of the node agent; the test applies them to a real API server. That the pod
// can do its work is tested in a virtual machine, see test/vm.
package daemonset

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestManifests(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true})
	if err := c.Apply(t.Context(), "../crds"); err != nil {
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
			t.Run("the kubelet's probe as the page has it", func(t *testing.T) {
				container := "spec: {template: {spec: {containers: [{name: nodeagent, " + shownProbe(t) + "}]}}}"
				asked := kubectl(t, "patch", "daemonset", "nodeagent", "--namespace=fettle-system", "--dry-run=server", "--patch="+container,
					"--output=jsonpath={.spec.template.spec.hostNetwork} {.spec.template.spec.containers[0].livenessProbe.httpGet}")
				if want := `true {"host":"127.0.0.1","path":"/healthz","port":9190,"scheme":"HTTP"}`; asked != want {
					t.Errorf("the kubelet asks %s, want %s", asked, want)
				}
			})
			kubectl(t, "delete", "--filename=.", "--wait")
		})
	}
}

// shownProbe is the probe that the security model shows, where the agent answers with the configuration that it shows.
func shownProbe(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("set `endpoints.metricsAddress: (\\S+)` and give the container\n\n    (livenessProbe: .*)\n").FindStringSubmatch(string(page))
	if shown == nil {
		t.Fatal("the page shows no probe")
	}
	c, err := config.Parse("nodeagent.yaml", []byte("endpoints: {metricsAddress: \""+shown[1]+"\"}"), catalogue.Kinds())
	if err != nil || c.Endpoints.MetricsAddress != "127.0.0.1:9190" {
		t.Errorf("the agent answers at %s, %v", c.Endpoints.MetricsAddress, err)
	}
	return shown[2]
}

func testRights(t *testing.T, c *controlplane.ControlPlane) {
	for _, tc := range []struct {
		what string // verb resource[.group][[/name]/subresource] [namespace]
		want bool
	}{
		{"get nodes", true},
		{"list nodes", false},
		{"watch nodes", false},
		{"patch nodes", false},
		{"delete nodes", false},
		{"patch nodes/status", true},
		{"update nodes/status", false},
		{"get hosts.fettle.dev", true},
		{"list hosts.fettle.dev", true},
		{"watch hosts.fettle.dev", true},
		{"create hosts.fettle.dev", false},
		{"patch hosts.fettle.dev", false},
		{"delete hosts.fettle.dev", false},
		{"patch hosts.fettle.dev/status", true},
		{"get leases.coordination.k8s.io fettle-node-lease", true},
		{"create leases.coordination.k8s.io fettle-node-lease", true},
		{"update leases.coordination.k8s.io fettle-node-lease", true},
		{"patch leases.coordination.k8s.io fettle-node-lease", false},
		{"list leases.coordination.k8s.io fettle-node-lease", false},
		{"delete leases.coordination.k8s.io fettle-node-lease", true},
		{"deletecollection leases.coordination.k8s.io fettle-node-lease", false},
		{"update leases.coordination.k8s.io kube-node-lease", false},
		{"update leases.coordination.k8s.io kube-system", false},
		{"create events.events.k8s.io default", true},
		{"patch events.events.k8s.io default", true},
		{"list events.events.k8s.io default", false},
		{"create events default", false},
		{"create events.events.k8s.io kube-system", false},
		{"get secrets fettle-system", false},
		{"get configmaps fettle-system", false},
		{"list pods fettle-system", false},
		{"create serviceaccounts/token fettle-system", false},
		{"create serviceaccounts/controller/token fettle-system", false},
		{"create serviceaccounts/nodeagent/token fettle-system", true},
		{"create serviceaccounts/nodeagent/token kube-system", false},
	} {
		words := strings.Fields(tc.what)
		resource, subresource := words[1], ""
		if i := strings.LastIndex(resource, "/"); i >= 0 {
			resource, subresource = resource[:i], resource[i+1:]
		}
		args := []string{"auth", "can-i", words[0], resource, "--subresource=" + subresource, "--as=system:serviceaccount:fettle-system:nodeagent"}
		if len(words) > 2 {
			args = append(args, "--namespace="+words[2])
		}
		answer, err := c.Kubectl(t.Context(), args...)
		switch strings.TrimSpace(answer) {
		case "yes":
			if !tc.want {
				t.Errorf("the agent may %s", tc.what)
			}
		case "no": // with exit status 1
			if tc.want {
				t.Errorf("the agent may not %s", tc.what)
			}
		default:
			t.Errorf("%s: answer %q, error %v", tc.what, answer, err)
		}
	}
}

func TestShippedConfigurationIsValidAndSoAreItsExamples(t *testing.T) {
	manifest, err := os.ReadFile("20-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shipped corev1.ConfigMap
	if err := yaml.UnmarshalStrict(manifest, &shipped); err != nil {
		t.Fatal(err)
	}
	text := shipped.Data["nodeagent.yaml"]
	examples := regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(text, "")
	if examples == text {
		t.Fatalf("no examples in %q", text)
	}
	for _, content := range []string{text, examples} {
		if _, err := config.Parse("nodeagent.yaml", []byte(content), catalogue.Kinds()); err != nil {
			t.Error(err)
		}
	}
}
