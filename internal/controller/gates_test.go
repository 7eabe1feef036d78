package controller

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// requires makes a rule of objects alone.
func requires(objects ...readinessv1alpha1.ObjectRequirement) func(*rule) {
	return func(r *rule) { r.Spec.Conditions, r.Spec.Objects = nil, objects }
}

// manifest applies a manifest.
func (w *world) manifest(t *testing.T, manifest string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.ControlPlane.Apply(t.Context(), path); err != nil {
		t.Fatal(err)
	}
}

// heldFor waits until the node carries the taint of the rule, and the rule's status says of an object what is wanted.
func (w *world) heldFor(t *testing.T, node, rule string, ready corev1.ConditionStatus, says string) {
	t.Helper()
	w.saysOfObject(t, rule, node, ready, says)
	await.That(t, fmt.Sprintf("rule %s holds node %s", rule, node), func() bool {
		return taintedWith("r.example.com/" + rule)(w.getNode(t, node))
	})
}

// saysOfObject waits until the rule's status says of an object for a node what is wanted.
func (w *world) saysOfObject(t *testing.T, rule, node string, ready corev1.ConditionStatus, says string) {
	t.Helper()
	var seen []readinessv1alpha1.NodeEvaluation
	defer func() {
		if t.Failed() {
			t.Logf("seen last: %+v", seen)
		}
	}()
	await.That(t, fmt.Sprintf("rule %s says of an object for node %s: %s, %q", rule, node, ready, says), func() bool {
		seen = w.getRule(t, rule).Status.NodeEvaluations
		return slices.ContainsFunc(seen, func(e readinessv1alpha1.NodeEvaluation) bool {
			return e.NodeName == node && slices.ContainsFunc(e.ObjectResults, func(o readinessv1alpha1.ObjectResult) bool {
				return o.Ready == ready && strings.Contains(o.Message, says)
			})
		})
	})
}

// released waits until the node does not carry the taint of the rule.
func (w *world) released(t *testing.T, node, rule string) {
	t.Helper()
	await.That(t, fmt.Sprintf("rule %s releases node %s", rule, node), func() bool {
		return !taintedWith("r.example.com/" + rule)(w.getNode(t, node))
	})
}

// TestObjectsHoldAndReleaseNodes runs rules with each kind of object on the real API server, with the rights of
// deploy/controller.
func TestObjectsHoldAndReleaseNodes(t *testing.T) {
	w := newWorld(t)
	outer := t
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/controller/15-objects.yaml"); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	stop := w.run(t, testOptions(t))
	w.node(t, "a", "gates")
	w.node(t, "b", "gates")

	part := func(name string, run func(*testing.T)) { // a part begins where the one before ended
		t.Helper()
		if !t.Failed() {
			t.Run(name, run)
		}
	}
	part("an object that the controller may not read is unknown, until it may", func(t *testing.T) {
		w.rule(outer, "license", "gates", requires(readinessv1alpha1.ObjectRequirement{
			Name: "license", Object: &readinessv1alpha1.ReadyObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "license"},
		}))
		w.heldFor(t, "a", "license", "Unknown", "forbidden")
		w.heldFor(t, "b", "license", "Unknown", "forbidden")
		w.manifest(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-licenses, labels: {fettle.dev/aggregate-to-controller: "true"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]
`)
		w.heldFor(t, "a", "license", "Unknown", "ConfigMap default/license does not exist")
		w.kubectl(t, "create", "configmap", "license", "--namespace=default")
		w.released(t, "a", "license")
		w.released(t, "b", "license")
		w.kubectl(t, "delete", "configmap", "license", "--namespace=default")
		w.heldFor(t, "b", "license", "Unknown", "does not exist")
		w.kubectl(t, "create", "configmap", "license", "--namespace=default")
		w.released(t, "a", "license")
		w.released(t, "b", "license")
	})

	part("an object for each node holds and releases its own, and its kind may come later", func(t *testing.T) {
		w.rule(outer, "driver", "gates", requires(readinessv1alpha1.ObjectRequirement{
			Name: "driver", Object: &readinessv1alpha1.ReadyObject{APIVersion: "example.com/v1", Kind: "Driver", Name: "gpu-$(NODE_NAME)", StatusHint: "has-ready-condition"},
		}))
		w.heldFor(t, "a", "driver", "Unknown", "does not know kind Driver of example.com/v1")
		w.manifest(t, driverDefinition)
		w.manifest(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-drivers, labels: {fettle.dev/aggregate-to-controller: "true"}}
rules: [{apiGroups: [example.com], resources: [drivers], verbs: [list, watch]}]
`)
		w.heldFor(t, "a", "driver", "Unknown", "Driver gpu-a does not exist")
		for _, node := range []string{"a", "b"} {
			w.manifest(t, "{apiVersion: example.com/v1, kind: Driver, metadata: {name: gpu-"+node+"}, spec: {version: '1'}}")
		}
		w.heldFor(t, "a", "driver", "Unknown", "Driver gpu-a: it has no condition Ready yet")
		status := func(node, status string) {
			t.Helper()
			w.kubectl(t, "patch", "driver", "gpu-"+node, "--subresource=status", "--type=merge", "--patch="+status)
		}
		status("a", `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False","message":"the module does not load"}]}}`)
		w.heldFor(t, "a", "driver", "False", "the module does not load")
		status("a", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		w.released(t, "a", "driver")
		w.heldFor(t, "b", "driver", "Unknown", "it has no condition Ready yet")
		w.kubectl(t, "patch", "driver", "gpu-a", "--type=merge", `--patch={"spec":{"version":"2"}}`)
		w.heldFor(t, "a", "driver", "False", "generation is 2, but latest observed generation is 1")
		for _, node := range []string{"a", "b"} {
			status(node, `{"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True"}]}}`)
		}
		w.heldFor(t, "b", "driver", "False", "generation is 1, but latest observed generation is 2")
		status("b", `{"status":{"observedGeneration":1}}`)
		w.released(t, "a", "driver")
		w.released(t, "b", "driver")
	})

	part("a wrong hint is reported, not waited for", func(t *testing.T) {
		w.rule(t, "hint", "gates", requires(readinessv1alpha1.ObjectRequirement{
			Name: "x", Object: &readinessv1alpha1.ReadyObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "license", StatusHint: "has-status"},
		}))
		w.heldFor(t, "a", "hint", "Unknown", `hint "has-status" is unknown`)
		w.editRule(t, "hint", func(r *rule) { r.Spec.Objects[0].Object.StatusHint = "" })
		w.released(t, "a", "hint")
		w.editRule(t, "hint", func(r *rule) { r.Spec.Objects[0].Object.Namespace = "" })
		w.heldFor(t, "a", "hint", "Unknown", "are in namespaces")
		w.kubectl(t, "delete", "nodereadinessrule", "hint")
		w.released(t, "a", "hint")
		w.released(t, "b", "hint")
	})

	part("the pod of a DaemonSet on the node, of the newest revision", func(t *testing.T) {
		w.rule(outer, "plugin", "gates", requires(readinessv1alpha1.ObjectRequirement{
			Name: "plugin", DaemonSet: &readinessv1alpha1.DaemonSetOnNode{Namespace: "default", Name: "plugin"},
		}))
		w.heldFor(t, "a", "plugin", "Unknown", "DaemonSet default/plugin does not exist")
		w.manifest(t, pluginDaemonSet)
		w.heldFor(t, "a", "plugin", "False", "no pod on the node: it has not been made or scheduled yet")
		pod := w.scheduled(t, clients, "default", "a", "registry.example.com/plugin:1")
		w.heldFor(t, "a", "plugin", "False", "pod "+pod.Name+" is not ready")
		w.podReady(t, clients, pod, "True")
		w.released(t, "a", "plugin")
		w.heldFor(t, "b", "plugin", "False", "no pod on the node")
		w.podReady(t, clients, pod, "False")
		w.heldFor(t, "a", "plugin", "False", "pod "+pod.Name+" is not ready")
		w.podReady(t, clients, pod, "True")
		w.released(t, "a", "plugin")

		// Another template: the pod is of an older revision until it is replaced, and the DaemonSet leaves it alone.
		w.kubectl(t, "patch", "daemonset", "plugin", "--namespace=default", "--type=json", `--patch=[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/plugin:2"}]`)
		w.heldFor(t, "a", "plugin", "False", "pod "+pod.Name+" is of an older revision, and with updateStrategy OnDelete stays so until it is deleted")
		// Back to what it was: the old revision is the newest again.
		w.kubectl(t, "patch", "daemonset", "plugin", "--namespace=default", "--type=json", `--patch=[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/plugin:1"}]`)
		w.released(t, "a", "plugin")
		w.kubectl(t, "patch", "daemonset", "plugin", "--namespace=default", "--type=json", `--patch=[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.example.com/plugin:2"}]`)
		w.heldFor(t, "a", "plugin", "False", "older revision")
		w.kubectl(t, "delete", "pods", "--selector=app=plugin", "--namespace=default", "--force", "--grace-period=0")
		w.heldFor(t, "a", "plugin", "False", "no pod on the node")
		for _, node := range []string{"a", "b"} {
			w.podReady(t, clients, w.scheduled(t, clients, "default", node, "registry.example.com/plugin:2"), "True")
		}
		w.released(t, "a", "plugin")
		w.released(t, "b", "plugin")

		// Another DaemonSet of the same name has pods of its own.
		w.kubectl(t, "delete", "daemonset", "plugin", "--namespace=default", "--cascade=orphan", "--wait")
		w.heldFor(t, "a", "plugin", "Unknown", "does not exist")
		w.manifest(t, strings.Replace(pluginDaemonSet, "plugin:1", "plugin:2", 1)) // and adopts those that are there
		w.released(t, "a", "plugin")
		w.released(t, "b", "plugin")
	})

	part("an allocatable resource", func(t *testing.T) {
		w.rule(outer, "gpus", "gates", requires(readinessv1alpha1.ObjectRequirement{
			Name: "gpus", Allocatable: &readinessv1alpha1.AllocatableResource{Resource: "nvidia.com/gpu", AtLeast: resource.MustParse("8")},
		}))
		w.heldFor(t, "a", "gpus", "False", "offers no nvidia.com/gpu")
		offers := func(node, n string) {
			t.Helper()
			w.patch(t, w.getNode(t, node), `{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"`+n+`"}}}`, "status")
		}
		offers("a", "8")
		w.released(t, "a", "gpus")
		w.heldFor(t, "b", "gpus", "False", "offers no nvidia.com/gpu")
		offers("a", "7")
		w.heldFor(t, "a", "gpus", "False", "offers 7 of nvidia.com/gpu, and 8 are required")
		offers("a", "8")
		offers("b", "8")
		w.released(t, "a", "gpus")
		w.released(t, "b", "gpus")
	})

	untainted := func(t *testing.T, what string, versions <-chan *corev1.Node) {
		t.Helper()
		for {
			select {
			case n := <-versions:
				if tainted := taintsOf(n); tainted != "" {
					t.Errorf("%s held a node that is ready: %s", what, tainted)
				}
			default:
				return
			}
		}
	}
	part("a new controller does not hold for a moment what is ready", func(t *testing.T) {
		versions := w.versions(t, "a")
		stop()
		stop = w.run(outer, testOptions(outer))
		// It has looked at every node when it does what only a running one does.
		w.node(t, "c", "gates")
		w.heldFor(t, "c", "plugin", "False", "no pod on the node")
		w.quiet(t)
		untainted(t, "the start", versions)
	})
	part("a rule that requires one thing more that is ready does not hold for a moment", func(t *testing.T) {
		w.kubectl(t, "create", "configmap", "another", "--namespace=default")
		versions := w.versions(t, "a")
		w.editRule(t, "gpus", func(r *rule) {
			r.Spec.Objects = append(r.Spec.Objects, readinessv1alpha1.ObjectRequirement{
				Name: "another", Object: &readinessv1alpha1.ReadyObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "another"},
			})
		})
		await.That(t, "the rule is enforced as edited", func() bool {
			r := w.getRule(t, "gpus")
			return r.Status.ObservedGeneration == r.Generation
		})
		w.quiet(t)
		untainted(t, "the edit", versions)
	})
	part("nothing is read beyond what rules name", func(t *testing.T) {
		requests, err := w.Requests()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests.By(controllerUser).Where(func(r controlplane.Request) bool { return r.Verb == "list" || r.Verb == "watch" }) {
			selected := map[string]string{"pods": "labelSelector=app%3Dplugin", "controllerrevisions": "labelSelector=app%3Dplugin", "configmaps": "fieldSelector=metadata.name"}[r.Resource]
			if selected != "" && (r.Namespace != "default" || !strings.Contains(r.Path, selected)) {
				t.Errorf("read: %s", r.Path)
			}
		}
	})
}

// bound binds a pod to a node, as the scheduler does, once it has been made.
func (w *world) bound(t *testing.T, clients kubernetes.Interface, namespace, node string, which func(corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await.That(t, "a pod is made for node "+node, func() bool {
		list, err := clients.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(list.Items, which); i >= 0 {
			pod = &list.Items[i]
		}
		return pod != nil
	})
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if err := clients.CoreV1().Pods(namespace).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return pod
}

// scheduled binds the pod with an image that a DaemonSet made for a node.
func (w *world) scheduled(t *testing.T, clients kubernetes.Interface, namespace, node, image string) *corev1.Pod {
	t.Helper()
	return w.bound(t, clients, namespace, node, func(p corev1.Pod) bool {
		affinity, err := json.Marshal(p.Spec.Affinity)
		return err == nil && p.Spec.Containers[0].Image == image && strings.Contains(string(affinity), fmt.Sprintf(`"values":[%q]`, node))
	})
}

// podReady says of a pod what a kubelet would.
func (w *world) podReady(t *testing.T, clients kubernetes.Interface, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, ready)
	if _, err := clients.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

const driverDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: drivers.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Driver, plural: drivers, singular: driver, listKind: DriverList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const pluginDaemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: default}
spec:
  selector: {matchLabels: {app: plugin}}
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: plugin}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: plugin, image: "registry.example.com/plugin:1"}]
`
