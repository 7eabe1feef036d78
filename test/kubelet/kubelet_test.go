package kubelet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/kubelet"
	"github.com/fettle-dev/fettle/test/machines"
)

func TestNodeFollowsItsMachine(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{Audit: true})
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	m := machines.ForTest(t, machines.Options{Name: "machine-1"})
	before, err := m.BootID()
	if err != nil {
		t.Fatal(err)
	}
	taint := corev1.Taint{Key: "example.com/not-looked-at", Effect: corev1.TaintEffectNoSchedule}
	node, stop := kubelet.ForTest(t, c, kubelet.Options{
		Node: "machine-1", BootID: m.BootID, Taints: []corev1.Taint{taint}, Labels: map[string]string{"example.com/pool": "a"},
	})
	if node.Status.NodeInfo.BootID != before {
		t.Errorf("boot ID %q, want the machine's %q", node.Status.NodeInfo.BootID, before)
	}
	if len(node.Spec.Taints) == 0 || !node.Spec.Taints[0].MatchTaint(&taint) || node.Labels["example.com/pool"] != "a" {
		t.Errorf("registered with taints %v, labels %v", node.Spec.Taints, node.Labels)
	}

	// Somebody else's condition must survive everything that a kubelet posts.
	foreign := []byte(`{"status":{"conditions":[{"type":"example.com/Foreign","status":"True","reason":"Set"}]}}`)
	if _, err := clients.CoreV1().Nodes().Patch(t.Context(), "machine-1", "application/strategic-merge-patch+json", foreign, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	after, err := m.Reboot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the Node says the new boot ID", func(ctx context.Context) bool {
		node, err := clients.CoreV1().Nodes().Get(ctx, "machine-1", metav1.GetOptions{})
		if err != nil || node.Status.NodeInfo.BootID != after {
			return false
		}
		if _, condition := nodeutil.GetNodeCondition(&node.Status, "example.com/Foreign"); condition == nil {
			t.Error("a condition of somebody else is gone")
		}
		return true
	})

	var first metav1.MicroTime
	await(t, "the lease is held and owned by the Node", func(ctx context.Context) bool {
		lease, err := clients.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "machine-1", metav1.GetOptions{})
		if err != nil || len(lease.OwnerReferences) != 1 {
			return false
		}
		first = *lease.Spec.RenewTime
		return *lease.Spec.HolderIdentity == "machine-1" && lease.OwnerReferences[0].UID == node.UID
	})
	await(t, "the lease is renewed", func(ctx context.Context) bool {
		lease, err := clients.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "machine-1", metav1.GetOptions{})
		return err == nil && first.Before(lease.Spec.RenewTime)
	})

	stop()
	requests, err := c.Requests()
	if err != nil {
		t.Fatal(err)
	}
	own := requests.By(controlplane.NodeUser("machine-1"))
	if len(own) == 0 {
		t.Error("nothing was done with the node's own credentials")
	}
	refused := own.Where(func(r controlplane.Request) bool { return r.Code >= 400 && r.Code != 404 && r.Code != 409 })
	if len(refused) > 0 {
		t.Errorf("refused requests:\n%s", refused)
	}
}

func TestNodeOfAMachineThatIsDownGoesSilent(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{
		ControllerManager: true, ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=15s"},
	})
	down := make(chan struct{})
	kubelet.ForTest(t, c, kubelet.Options{Node: "machine-1", BootID: func() (string, error) {
		select {
		case <-down:
			return "", errors.New("down")
		default:
			return "a", nil
		}
	}})
	close(down)
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the controller manager gives the node up", func(ctx context.Context) bool {
		node, err := clients.CoreV1().Nodes().Get(ctx, "machine-1", metav1.GetOptions{})
		if err != nil {
			return false
		}
		_, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
		return condition.Status == corev1.ConditionUnknown
	})
}

func await(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("did not come about: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
