package kubelet

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// ForTest runs a stand-in with a node's own credentials until the end of the test, or until stop is called, and
// waits until its Node is Ready in the boot that the machine is in.
func ForTest(t testing.TB, c *controlplane.ControlPlane, opts Options) (node *corev1.Node, stop func()) {
	t.Helper()
	path, err := c.KubeconfigFor(controlplane.NodeUser(opts.Node), controlplane.NodesGroup)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := Run(ctx, config, opts); err != nil {
			t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		node, err := clients.CoreV1().Nodes().Get(t.Context(), opts.Node, metav1.GetOptions{})
		if err == nil && ready(node) && inBoot(node, opts.BootID) {
			return node, stop
		}
		if time.Now().After(deadline) {
			t.Fatalf("Node %s did not become Ready in a minute: %v", opts.Node, err)
		}
	}
}

func ready(node *corev1.Node) bool {
	_, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func inBoot(node *corev1.Node, bootID func() (string, error)) bool {
	if bootID == nil {
		return true
	}
	now, err := bootID()
	return err == nil && now == node.Status.NodeInfo.BootID
}
