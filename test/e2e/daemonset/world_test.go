package daemonset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
	"github.com/fettle-dev/fettle/test/vm"
)

const (
	nodeName  = "vm1"
	namespace = "fettle-system"

	// Taints of the example rules.
	networkTaint = "readiness.k8s.io/network"
	storageTaint = "readiness.k8s.io/storage"

	// patience only ends a test that hangs. The machine is emulated, and after a fault the kubelet takes up to five
	// minutes to start a container again that kept failing.
	patience = 10 * time.Minute
)

// conditionTypes are those that the shipped configuration publishes.
var conditionTypes = []string{
	fettlev1alpha1.ConditionNetworkReady, fettlev1alpha1.ConditionStorageReady, fettlev1alpha1.ConditionHealthy,
	"fettle.dev/KernelReady", "fettle.dev/RuntimeReady", "fettle.dev/AgentReady",
}

// wellReasons are those of conditions that are True here for another reason than OK: nobody sets the machine's clock.
var wellReasons = map[string]string{"fettle.dev/KernelReady": "ClockUnsynchronised", fettlev1alpha1.ConditionHealthy: "ClockUnsynchronised"}

type look = func(context.Context) error

// world is a control plane with the product's manifests and one machine.
type world struct {
	*stack.Stack
	vm *vm.VM
}

// startWorld ends with a machine that is registered and Ready, with the taints of the example rules, and is no worker yet.
func startWorld(t *testing.T) *world {
	s := stack.ForTest(t, stack.Options{Scheduler: true, HostAliases: map[string]string{nodeName: "127.0.0.1"}, NoController: true})
	var images []string
	for name, user := range map[string]string{"nodeagent": "", "controller": "65532:65532"} {
		image, err := vm.Pack(t.Context(), t.TempDir(), s.Program(name), vm.Program{Tag: "fettle.dev/" + name + ":dev", Path: "/usr/bin/" + name, User: user})
		must(t, err)
		images = append(images, image)
	}
	for _, folder := range []string{"deploy/crds", "deploy/daemonset", "deploy/controller", "deploy/examples"} {
		must(t, s.ControlPlane.Apply(t.Context(), s.Path(folder)))
	}
	taint := func(key string) corev1.Taint {
		return corev1.Taint{Key: key, Value: "pending", Effect: corev1.TaintEffectNoSchedule}
	}
	w := &world{Stack: s}
	w.vm = vm.ForTest(t, vm.Options{
		Name: nodeName, ControlPlane: s.ControlPlane, Images: images,
		Kubelet: map[string]any{
			"registerWithTaints":   []corev1.Taint{taint(networkTaint), taint(storageTaint)},
			"singleProcessOOMKill": true, // see glutton
		},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.lastWords(context.WithoutCancel(t.Context())))
		}
	})
	return w
}

// makeWorker gives the node the label that the example rules select by. Kubelets may not give it to themselves.
func (w *world) makeWorker(t *testing.T) {
	t.Helper()
	w.kubectl(t, "label", "node", nodeName, stack.WorkerLabel+"=")
}

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.ControlPlane.Kubectl(t.Context(), args...)
	must(t, err)
	return out
}

func (w *world) await(t *testing.T, what string, look look) {
	t.Helper()
	must(t, stack.AwaitWithin(t.Context(), patience, what, look))
}

// well is a look at everything that is said of a machine without faults.
func (w *world) well() look {
	looks := []look{
		w.HostReady(nodeName, metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
		w.Tainted(nodeName, networkTaint, false), w.Tainted(nodeName, storageTaint, false),
	}
	for _, name := range conditionTypes {
		looks = append(looks, w.Says(nodeName, name, corev1.ConditionTrue, cmp.Or(wellReasons[name], "OK")))
	}
	return stack.All(looks...)
}

// faulty is a look at everything that is said of a machine whose network is at fault for the reason.
func (w *world) faulty(reason string) look {
	return stack.All(
		w.Says(nodeName, fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, reason),
		w.Says(nodeName, fettlev1alpha1.ConditionHealthy, corev1.ConditionFalse, reason),
		w.Says(nodeName, fettlev1alpha1.ConditionStorageReady, corev1.ConditionTrue, "OK"),
		w.Tainted(nodeName, networkTaint, true), w.Tainted(nodeName, storageTaint, false),
		w.HostReady(nodeName, metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
	)
}

// spokenFor is a look whether another process than that of the identity before has taken the lease and reported, on the
// node of that UID.
func (w *world) spokenFor(before string, node *corev1.Node) look {
	return func(ctx context.Context) error {
		host, err := w.GetHost(ctx, nodeName)
		if err != nil {
			return err
		}
		lease, err := w.lease(ctx)
		if err != nil {
			return err
		}
		switch {
		case host.Spec.NodeUID != node.UID:
			return fmt.Errorf("the host is that of node %s, want %s", host.Spec.NodeUID, node.UID)
		case host.Status.Agent == nil || host.Status.Agent.ID == before:
			return fmt.Errorf("the host tells of agent %+v, want another than %s", host.Status.Agent, before)
		case *lease.Spec.HolderIdentity != host.Status.Agent.ID:
			return fmt.Errorf("the lease is held by %s, the host tells of %s", *lease.Spec.HolderIdentity, host.Status.Agent.ID)
		case !slices.ContainsFunc(lease.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == node.UID }):
			return fmt.Errorf("the lease is owned by %v, want node %s", lease.OwnerReferences, node.UID)
		}
		return nil
	}
}

func (w *world) node(t *testing.T) *corev1.Node {
	t.Helper()
	node, err := w.GetNode(t.Context(), nodeName)
	must(t, err)
	return node
}

// agent is what the Host says of the agent that reported last.
func (w *world) agent(t *testing.T) fettlev1alpha1.HostAgent {
	t.Helper()
	host, err := w.GetHost(t.Context(), nodeName)
	must(t, err)
	if host.Status.Agent == nil {
		t.Fatal("no agent has reported")
	}
	return *host.Status.Agent
}

func (w *world) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: nodeName}, &lease)
	return &lease, err
}

// pods are those of one of the two programs.
func (w *world) pods(ctx context.Context, program string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": program})
	return list.Items, err
}

// agentPod is the DaemonSet's only pod.
func (w *world) agentPod(t *testing.T) corev1.Pod {
	t.Helper()
	pods, err := w.pods(t.Context(), "nodeagent")
	must(t, err)
	if len(pods) != 1 {
		t.Fatalf("%d pods of the agent, want 1", len(pods))
	}
	return pods[0]
}

// controllerRuns is a look whether both replicas of the Deployment are available.
func (w *world) controllerRuns(ctx context.Context) error {
	var d appsv1.Deployment
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "controller"}, &d); err != nil {
		return err
	}
	if d.Status.AvailableReplicas != 2 || d.Status.ObservedGeneration != d.Generation {
		return fmt.Errorf("of the controller's replicas %d are available, want 2", d.Status.AvailableReplicas)
	}
	return nil
}

// agentLog is the log of the agent's container, one record for each line.
func (w *world) agentLog(t *testing.T) []logRecord {
	t.Helper()
	var all []logRecord
	for line := range strings.Lines(w.kubectl(t, "logs", "--namespace="+namespace, "daemonset/nodeagent")) {
		var r logRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("the agent's log is JSON in a pod: %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

type logRecord struct {
	Time      time.Time
	Msg       string
	Check     string
	Condition string
}

// lastWords is what helps to understand a failure; QEMU, console and journal are logged by package vm.
func (w *world) lastWords(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var text strings.Builder
	for _, args := range [][]string{
		{"describe", "node", nodeName},
		{"get", "host", nodeName, "--output=yaml"},
		{"get", "lease", nodeName, "--namespace=" + fettlev1alpha1.LeaseNamespace, "--output=yaml"},
		{"get", "pods", "--namespace=" + namespace, "--output=wide"},
		{"get", "events", "--namespace=" + namespace, "--sort-by=.lastTimestamp"},
		{"logs", "--namespace=" + namespace, "--selector=app.kubernetes.io/name=nodeagent", "--tail=100"},
		{"logs", "--namespace=" + namespace, "--selector=app.kubernetes.io/name=controller", "--tail=50", "--prefix"},
	} {
		out, err := w.ControlPlane.Kubectl(ctx, args...)
		fmt.Fprintf(&text, "kubectl %s (error %v):\n%s\n", strings.Join(args, " "), err, out)
	}
	return text.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
