package controller

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// promises are what docs/rules.md and deploy/examples say of each of their rules, by the rule's name. selected has labels
// that the rule selects by.
var promises = map[string]func(t *testing.T, w *world, selected map[string]string){
	"network-ready": func(t *testing.T, w *world, selected map[string]string) {
		w.labelled(t, "network", selected)
		w.tainted(t, "network", "readiness.k8s.io/network=pending:NoSchedule")
		w.condition(t, "network", "fettle.dev/NetworkReady", "True")
		w.tainted(t, "network")
		w.condition(t, "network", "fettle.dev/NetworkReady", "Unknown")
		w.tainted(t, "network", "readiness.k8s.io/network=pending:NoSchedule")
	},
	"storage-bootstrap": func(t *testing.T, w *world, selected map[string]string) {
		w.labelled(t, "storage", selected)
		w.tainted(t, "storage", "readiness.k8s.io/storage=pending:NoSchedule")
		w.condition(t, "storage", "fettle.dev/StorageReady", "True")
		w.tainted(t, "storage")
		w.condition(t, "storage", "fettle.dev/StorageReady", "False")
		w.quiet(t)
		w.tainted(t, "storage")
	},
	"gpu-ready": func(t *testing.T, w *world, selected map[string]string) {
		const taint = "readiness.k8s.io/gpu=pending:NoSchedule"
		w.labelled(t, "gpu", selected)
		w.tainted(t, "gpu", taint)
		w.condition(t, "gpu", "gpu.example.com/DriverReady", "True")
		w.condition(t, "gpu", "gpu.example.com/PartitionsReady", "True")
		w.tainted(t, "gpu")
		w.condition(t, "gpu", "gpu.example.com/DriverReady", "False")
		w.tainted(t, "gpu", taint)
		w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "nodereadinessrule/gpu-ready")

		w.kubectl(t, "patch", "nodereadinessrule", "gpu-ready", "--type=merge", `--patch={"spec":{"suspend":true}}`)
		w.kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Suspended`, "--timeout=120s", "nrr/gpu-ready")
		w.condition(t, "gpu", "gpu.example.com/DriverReady", "True")
		w.quiet(t)
		w.tainted(t, "gpu", taint)
		w.kubectl(t, "patch", "nodereadinessrule", "gpu-ready", "--type=merge", `--patch={"spec":{"suspend":false}}`)
		w.tainted(t, "gpu")

		w.kubectl(t, "patch", "nodereadinessrule", "gpu-ready", "--type=merge", `--patch={"spec":{"dryRun":true}}`)
		w.condition(t, "gpu", "gpu.example.com/DriverReady", "False")
		w.dryRun(t, "gpu-ready", readinessv1alpha1.DryRunResults{AffectedNodes: 1, TaintsToAdd: 1, NodesToTaint: []string{"gpu"}, Summary: "would taint 1: gpu"})
		w.tainted(t, "gpu")
	},
	"any-uplink": func(t *testing.T, w *world, selected map[string]string) {
		w.labelled(t, "uplink", selected)
		w.status(t, "any-uplink", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: 1, Ready: 1})
		w.condition(t, "uplink", "example.com/UplinkA", "False")
		w.condition(t, "uplink", "example.com/UplinkB", "False")
		w.tainted(t, "uplink", "readiness.k8s.io/uplink=:NoSchedule")
		w.condition(t, "uplink", "example.com/UplinkB", "True")
		w.tainted(t, "uplink")
	},
	"kernel-sound": func(t *testing.T, w *world, selected map[string]string) {
		const taint = "readiness.k8s.io/kernel=:NoSchedule"
		w.editRule(t, "kernel-sound", func(r *rule) { // the page's times are too long for a test
			c := &r.Spec.Conditions[0]
			c.MaxAge.Duration, c.For.Adding.Duration, c.For.Removing.Duration = 10*time.Second, time.Second, time.Second
		})
		w.labelled(t, "kernel", selected)
		w.tainted(t, "kernel", taint) // new, and nobody says that it is sound
		heartbeat := func(at time.Time) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kernel"}}
			w.patch(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":"KernelDeadlock","status":"False","reason":"Test","message":"test","lastHeartbeatTime":%q}]}}`,
				at.UTC().Format(time.RFC3339)), "status")
		}
		w.eventually(t, "a reporter that lives releases the node", func() (bool, string) {
			heartbeat(time.Now())
			got := taintsOf(w.getNode(t, "kernel"))
			return got == "", got
		})
		w.tainted(t, "kernel", taint) // it has died
		w.eventually(t, "the condition is stale", func() (bool, string) {
			list := w.getRule(t, "kernel-sound").Status.NodeEvaluations
			return len(list) == 1 && list[0].ConditionResults[0].Stale, fmt.Sprint(list)
		})
	},
	"images-pulled": func(t *testing.T, w *world, selected map[string]string) {
		const taint = "readiness.k8s.io/images=:NoSchedule"
		n := w.labelled(t, "images", selected)
		boot := func(id string) {
			w.patch(t, n, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, id), "status")
		}
		boot("11111111-0000-4000-8000-000000000000")
		w.tainted(t, "images", taint)
		w.condition(t, "images", "example.com/ImagesPulled", "True")
		w.tainted(t, "images")
		w.condition(t, "images", "example.com/ImagesPulled", "False")
		w.quiet(t)
		w.tainted(t, "images")
		boot("22222222-0000-4000-8000-000000000000")
		w.tainted(t, "images", taint)
		w.condition(t, "images", "example.com/ImagesPulled", "True")
		w.tainted(t, "images")
	},
	"csi-ready": func(t *testing.T, w *world, selected map[string]string) {
		w.labelled(t, "csi", selected)
		w.tainted(t, "csi", "readiness.k8s.io/csi=:NoSchedule", "startup-taint.cluster-autoscaler.kubernetes.io/csi=:NoSchedule")
		w.condition(t, "csi", "example.com/CSIReady", "True")
		w.tainted(t, "csi")
	},
	"disks-failing": func(t *testing.T, w *world, selected map[string]string) {
		const nodes = 3
		for i := range nodes {
			w.labelled(t, fmt.Sprintf("disks-%d", i), selected)
			w.condition(t, fmt.Sprintf("disks-%d", i), "example.com/DisksHealthy", "True")
		}
		w.status(t, "disks-failing", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: nodes, Ready: nodes})
		for i := range nodes {
			w.condition(t, fmt.Sprintf("disks-%d", i), "example.com/DisksHealthy", "False")
		}
		w.status(t, "disks-failing", "True", readiness.ReasonEnforced, readinessv1alpha1.NodeCounts{Selected: nodes, Held: 1, Spared: nodes - 1})
		held := 0
		for i := range nodes {
			if taintsOf(w.getNode(t, fmt.Sprintf("disks-%d", i))) == "readiness.k8s.io/disks=:NoExecute" {
				held++
			}
		}
		if held != 1 {
			t.Errorf("%d nodes are held", held)
		}
		w.says(t, "disks-failing", readiness.ConditionAtBound, "maxTainted is 10%")
	},
}

// TestDocumentedRules applies every rule of the page on rules and of the examples, and holds it to what is said of it.
func TestDocumentedRules(t *testing.T) {
	documented := documentedRules(t)
	if got, want := slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(promises)); !slices.Equal(got, want) {
		t.Fatalf("rules %v are documented, and %v have a promise to hold", got, want)
	}
	w := newWorld(t)
	w.run(t, testOptions(t))
	for name, manifest := range documented {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rule.yaml")
			if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			w.kubectl(t, "apply", "--filename="+file)
			r := w.getRule(t, name)
			selected := map[string]string{}
			for key, value := range r.Spec.NodeSelector.MatchLabels {
				selected[key] = string(value)
			}
			for _, e := range r.Spec.NodeSelector.MatchExpressions {
				selected[e.Key] = ""
			}
			promises[name](t, w, selected)
			if err := w.Delete(t.Context(), r); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLinksOfThePagesOnRules(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)[^)]*\)`)
	for _, page := range []string{"rules.md", "reference/rules.md", "reference/compatibility.md"} {
		path := filepath.Join("../../docs", page)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		links := link.FindAllStringSubmatch(string(text), -1)
		if len(links) == 0 {
			t.Errorf("%s has no links: this test cannot see them", page)
		}
		for _, to := range links {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), to[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// documentedRules gives the manifests by the names of their rules.
func documentedRules(t *testing.T) map[string]string {
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var manifests []string
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		manifests = append(manifests, block[1])
	}
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, string(manifest))
	}
	rules := map[string]string{}
	for _, manifest := range manifests {
		var r rule
		if err := yaml.UnmarshalStrict([]byte(manifest), &r); err != nil {
			t.Fatalf("%v in:\n%s", err, manifest)
		}
		if _, twice := rules[r.Name]; twice || r.Name == "" || strings.Contains(manifest, "\t") {
			t.Fatalf("rule %q is documented twice or has no name", r.Name)
		}
		rules[r.Name] = manifest
	}
	return rules
}

// labelled makes a node with labels.
func (w *world) labelled(t *testing.T, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := w.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}
