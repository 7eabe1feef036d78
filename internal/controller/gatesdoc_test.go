package controller

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// documentedObjects gives the manifests of docs/object-gates.md by kind and name.
func documentedObjects(t *testing.T) map[string]string {
	page, err := os.ReadFile("../../docs/object-gates.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests := map[string]string{}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(block[1]), &object); err != nil {
			t.Fatalf("%v in:\n%s", err, block[1])
		}
		manifests[object.Kind+" "+object.Metadata.Name] = block[1]
	}
	return manifests
}

// TestDocumentedObjects applies every example of the page on objects, and holds it to what is said of it.
func TestDocumentedObjects(t *testing.T) {
	examples := documentedObjects(t)
	want := []string{"ClusterRole fettle-controller-drivers", "NodeDriver gpu-rack1-a", "NodeReadinessRule driver-loaded", "NodeReadinessRule gpu-stack"}
	if got := slices.Sorted(maps.Keys(examples)); !slices.Equal(got, want) {
		t.Fatalf("examples %v, want %v", got, want)
	}
	w := newWorld(t)
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/controller/15-objects.yaml"); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, testOptions(t))

	t.Run("the device plugin and the GPUs of the node", func(t *testing.T) {
		const taint = "readiness.k8s.io/gpu-stack=:NoSchedule"
		n := w.labelled(t, "gpu", map[string]string{"example.com/accelerator": "nvidia"})
		w.manifest(t, examples["NodeReadinessRule gpu-stack"])
		w.tainted(t, "gpu", taint)
		w.kubectl(t, "create", "namespace", "gpu-system")
		w.manifest(t, strings.NewReplacer("name: plugin, namespace: default", "name: device-plugin, namespace: gpu-system").Replace(pluginDaemonSet))
		w.podReady(t, clients, w.scheduled(t, clients, "gpu-system", "gpu", "registry.example.com/plugin:1"), "True")
		w.patch(t, n, `{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"7"}}}`, "status")
		w.saysOfObject(t, "gpu-stack", "gpu", "False", "the node offers 7 of nvidia.com/gpu, and 8 are required")
		w.tainted(t, "gpu", taint)
		w.patch(t, n, `{"status":{"allocatable":{"nvidia.com/gpu":"8"}}}`, "status")
		w.tainted(t, "gpu")
	})
	t.Run("an object of the node and one of the cluster, with the right to read them", func(t *testing.T) {
		const taint = "readiness.k8s.io/driver=:NoSchedule"
		w.labelled(t, "rack1-a", map[string]string{"example.com/driver": "managed"})
		w.manifest(t, examples["ClusterRole fettle-controller-drivers"])
		w.manifest(t, strings.NewReplacer("drivers.example.com", "nodedrivers.drivers.example.com", "group: example.com", "group: drivers.example.com",
			"kind: Driver, plural: drivers, singular: driver, listKind: DriverList", "kind: NodeDriver, plural: nodedrivers, singular: nodedriver, listKind: NodeDriverList").Replace(driverDefinition))
		w.manifest(t, examples["NodeReadinessRule driver-loaded"])
		w.saysOfObject(t, "driver-loaded", "rack1-a", "Unknown", "NodeDriver gpu-rack1-a does not exist")
		w.saysOfObject(t, "driver-loaded", "rack1-a", "Unknown", "Deployment driver-system/driver-webhook does not exist")
		w.tainted(t, "rack1-a", taint)
		w.manifest(t, examples["NodeDriver gpu-rack1-a"])
		w.kubectl(t, "create", "namespace", "driver-system")
		w.kubectl(t, "create", "deployment", "driver-webhook", "--namespace=driver-system", "--image=registry.example.com/webhook:1")
		w.saysOfObject(t, "driver-loaded", "rack1-a", "False", "Deployment driver-system/driver-webhook: ")
		webhook := w.bound(t, clients, "driver-system", "rack1-a", func(corev1.Pod) bool { return true })
		w.podReady(t, clients, webhook, "True")
		w.kubectl(t, "patch", "nodedriver", "gpu-rack1-a", "--subresource=status", "--type=merge", `--patch={"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`)
		w.saysOfObject(t, "driver-loaded", "rack1-a", "False", "it has no condition Loaded yet")
		w.kubectl(t, "patch", "nodedriver", "gpu-rack1-a", "--subresource=status", "--type=merge", `--patch={"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Loaded","status":"True"}]}}`)
		w.tainted(t, "rack1-a")
	})
}
