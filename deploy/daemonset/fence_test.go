package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/test/controlplane"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// fence is a control plane with the manifests applied and two nodes with a Host each, and the users that write there.
type fence struct {
	*controlplane.ControlPlane
	admin  *kubernetes.Clientset
	nodes  map[string]*corev1.Node
	agents map[string]rest.Interface // by who they are
}

// Users of a fence.
const (
	boundToA = "the agent of a, by a token bound to Node a"
	podOnA   = "the agent of a, by a token of a pod on a"
	boundToB = "the agent of b, by a token bound to Node b"
	unbound  = "an agent by a token that names no node"
)

// write is one request. It is always a dry run, so that no write sees another's.
type write struct {
	verb, path, contentType string
	body                    any
}

func newFence(t *testing.T) *fence {
	t.Helper()
	c := controlplane.ForTest(t, controlplane.Options{
		ControllerManager:          true, // it checks the types of expressions; what it does to silent nodes would only disturb
		ExtraControllerManagerArgs: []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller"},
	})
	must(t, c.Apply(t.Context(), "../crds", ".", "../controller/10-rights.yaml"))
	admin, err := kubernetes.NewForConfig(c.Config())
	must(t, err)
	f := &fence{ControlPlane: c, admin: admin, nodes: map[string]*corev1.Node{}, agents: map[string]rest.Interface{}}
	for _, name := range []string{"a", "b"} {
		f.nodes[name] = f.makeNode(t, name)
		_, err := c.Kubectl(t.Context(), "create", "--filename="+file(t, fmt.Sprintf(
			`{"apiVersion":"fettle.dev/v1alpha1","kind":"Host","metadata":{"name":%q},"spec":{"nodeUID":%q}}`, name, f.nodes[name].UID)))
		must(t, err)
	}
	for who, bound := range map[string]*authenticationv1.BoundObjectReference{
		boundToA: {APIVersion: "v1", Kind: "Node", Name: "a", UID: f.nodes["a"].UID},
		boundToB: {APIVersion: "v1", Kind: "Node", Name: "b", UID: f.nodes["b"].UID},
		podOnA:   f.makePod(t, "a"),
		unbound:  nil,
	} {
		f.agents[who] = f.as(t, "nodeagent", bound)
	}
	f.awaitPolicies(t)
	return f
}

// makeNode makes a Node that has something in most fields.
func (f *fence) makeNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	_, err := f.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"zone": "z"}, Annotations: map[string]string{"note": "n"}, Finalizers: []string{"example.com/keep"},
	}}, metav1.CreateOptions{})
	must(t, err)
	at := metav1.Now()
	status := corev1.NodeStatus{
		Capacity:    corev1.ResourceList{"cpu": resource.MustParse("4"), "example.com/gpu": resource.MustParse("8")},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "example.com/gpu": resource.MustParse("8")},
		Conditions: []corev1.NodeCondition{
			{Type: "Ready", Status: "True", Reason: "KubeletReady", LastHeartbeatTime: at, LastTransitionTime: at},
			{Type: "example.com/Foreign", Status: "False", Reason: "Foreign", LastHeartbeatTime: at, LastTransitionTime: at},
			{Type: "fettle.dev/StorageReady", Status: "True", Reason: "OK", LastHeartbeatTime: at, LastTransitionTime: at},
		},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
		NodeInfo:  corev1.NodeSystemInfo{BootID: "boot-1", KubeletVersion: "v1.36.3"},
		Images:    []corev1.ContainerImage{{Names: []string{"example.com/image:1"}, SizeBytes: 1}},
	}
	node, err := f.admin.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, encode(t, object{"status": status}), metav1.PatchOptions{}, "status")
	must(t, err)
	return node
}

// makePod makes a pod of the agent on a node and gives what binds a token to it.
func (f *fence) makePod(t *testing.T, node string) *authenticationv1.BoundObjectReference {
	t.Helper()
	pod, err := f.admin.CoreV1().Pods("fettle-system").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nodeagent-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "nodeagent", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "nodeagent", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
}

// as is a client that authenticates by a new token of a ServiceAccount in fettle-system.
func (f *fence) as(t *testing.T, serviceAccount string, bound *authenticationv1.BoundObjectReference) rest.Interface {
	t.Helper()
	token, err := f.ServiceAccountToken(t.Context(), "fettle-system", serviceAccount, bound)
	must(t, err)
	config := rest.AnonymousClientConfig(f.Config())
	config.BearerToken, config.QPS = token, -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client.CoreV1().RESTClient()
}

func (f *fence) asKubelet(t *testing.T, node string) rest.Interface {
	t.Helper()
	path, err := f.KubeconfigFor(controlplane.NodeUser(node), controlplane.NodesGroup)
	must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client.CoreV1().RESTClient()
}

// awaitPolicies waits until the API server holds by every policy. It reads them anew a while after they were made.
func (f *fence) awaitPolicies(t *testing.T) {
	t.Helper()
	for what, w := range f.ownWrites("a") {
		err := await(t, func() error {
			err := do(t.Context(), f.agents[unbound], w)
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				return fmt.Errorf("%s without a node in the token: %w", what, err)
			}
			return nil
		})
		must(t, err)
	}
}

// ownWrites are what the agent of a node may write, by what they are.
func (f *fence) ownWrites(node string) map[string]write {
	uid := f.nodes[node].UID
	return map[string]write{
		"apply its conditions": {"PATCH", "/api/v1/nodes/" + node + "/status?fieldManager=fettle-nodeagent&force=true", applyPatch,
			object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": node, "uid": uid}, "status": ownStatus["status"]}},
		"apply its host's status": {"PATCH", "/apis/fettle.dev/v1alpha1/hosts/" + node + "/status?fieldManager=fettle-nodeagent&force=true", applyPatch,
			object{"apiVersion": "fettle.dev/v1alpha1", "kind": "Host", "metadata": object{"name": node}, "status": object{"conditionTypes": []any{"fettle.dev/Healthy"}}}},
		"create its lease": {"POST", leases, "application/json",
			object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": node}, "spec": object{"holderIdentity": "x"}}},
		"create an event": {"POST", events, "application/json", event(node)},
		"get a new token": {"POST", "/api/v1/namespaces/fettle-system/serviceaccounts/nodeagent/token", "application/json", f.tokenRequest(node)},
	}
}

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/fettle-node-lease/leases"
	events = "/apis/events.k8s.io/v1/namespaces/default/events"
)

type object = map[string]any

var (
	ownCondition = object{"type": "fettle.dev/Healthy", "status": "True", "reason": "OK"}
	ownStatus    = object{"status": object{"conditions": []any{ownCondition}}}
)

func event(node string) object {
	return object{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": object{"name": node + ".1"}, "eventTime": "2026-01-02T03:04:05.000000Z",
		"reportingController": "fettle.dev/nodeagent", "reportingInstance": node, "action": "Look", "reason": "Broken", "type": "Warning", "note": "n",
		"regarding": object{"apiVersion": "v1", "kind": "Node", "name": node},
	}
}

func (f *fence) tokenRequest(node string) object {
	return object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{
		"expirationSeconds": 86400, "boundObjectRef": object{"apiVersion": "v1", "kind": "Node", "name": node, "uid": f.nodes[node].UID},
	}}
}

// do sends a write as a dry run.
func do(ctx context.Context, by rest.Interface, w write) error {
	body, err := json.Marshal(w.body)
	if err != nil {
		return err
	}
	request := by.Verb(w.verb).RequestURI(w.path).Param("dryRun", metav1.DryRunAll).MaxRetries(0)
	if w.verb != http.MethodDelete {
		request = request.SetHeader("Content-Type", w.contentType).Body(body)
	}
	return request.Do(ctx).Error()
}

// allowed and refused say what came of a write. A refusal must come from a policy of ours and say why.
func allowed(t *testing.T, by rest.Interface, w write) {
	t.Helper()
	if err := do(t.Context(), by, w); err != nil {
		t.Errorf("refused: %v", err)
	}
}

func refused(t *testing.T, by rest.Interface, w write, why string) {
	t.Helper()
	err := do(t.Context(), by, w)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nodeagent-") || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a policy to refuse it and say %q", err, why)
	}
}

// await tries again until the look has no complaint.
func await(t *testing.T, look func() error) error {
	t.Helper()
	err := look()
	for end := time.Now().Add(2 * time.Minute); err != nil && time.Now().Before(end) && t.Context().Err() == nil; err = look() {
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
