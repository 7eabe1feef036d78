package fleet_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/fleet"
)

func TestFleetWritesWhatAgentsWrite(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{Audit: true})
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 20
	f := fleet.ForTest(t, c, fleet.Options{Nodes: nodes, LeaseInterval: time.Second})

	list, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != nodes {
		t.Fatalf("%d nodes, %v", len(list.Items), err)
	}
	for _, node := range list.Items {
		if condition(&node, fettlev1alpha1.ConditionHealthy).Status != corev1.ConditionTrue || condition(&node, corev1.NodeReady).Status != corev1.ConditionTrue {
			t.Errorf("%s has conditions %v", node.Name, node.Status.Conditions)
		}
	}

	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	broken := fleet.Condition{Type: fettlev1alpha1.ConditionNetworkReady, Status: corev1.ConditionFalse, Reason: "CNIConfigMissing"}
	if err := f.SetCondition(t.Context(), 3, broken); err != nil {
		t.Fatal(err)
	}
	node, err := clients.CoreV1().Nodes().Get(t.Context(), f.Name(3), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := condition(node, fettlev1alpha1.ConditionNetworkReady); got.Status != corev1.ConditionFalse || got.Reason != "CNIConfigMissing" {
		t.Errorf("NetworkReady is %v", got)
	}
	requests, err := c.RequestsSince(mark)
	if err != nil {
		t.Fatal(err)
	}
	if got := requests.Counts()["patch nodes/status"]; got != 1 {
		t.Errorf("%d status patches for one change, want 1\n%s", got, requests)
	}
}

func TestSilentAgentStopsAndCatchesUp(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.ForTest(t, c, fleet.Options{Nodes: 2, LeaseInterval: 200 * time.Millisecond})
	renewed := func(i int) time.Time {
		lease, err := clients.CoordinationV1().Leases(fettlev1alpha1.LeaseNamespace).Get(t.Context(), f.Name(i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	f.Silence(0)
	silent, speaking := renewed(0), renewed(1)
	await(t, "the other agent renews thrice", func(context.Context) bool {
		return renewed(1).Sub(speaking) > 600*time.Millisecond
	})
	if got := renewed(0); !got.Equal(silent) {
		t.Errorf("the silent agent renewed its lease")
	}
	broken := fleet.Condition{Type: fettlev1alpha1.ConditionStorageReady, Status: corev1.ConditionFalse, Reason: "RootReadOnly"}
	if err := f.SetCondition(t.Context(), 0, broken); err != nil {
		t.Fatal(err)
	}
	status := func() corev1.ConditionStatus {
		node, err := clients.CoreV1().Nodes().Get(t.Context(), f.Name(0), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return condition(node, fettlev1alpha1.ConditionStorageReady).Status
	}
	if status() != corev1.ConditionTrue {
		t.Error("the silent agent wrote a condition")
	}
	f.Revive(0)
	await(t, "the revived agent says what it held back", func(context.Context) bool {
		return status() == corev1.ConditionFalse && renewed(0).After(silent)
	})
}

// What the controller will do: make a Host, and call it Unknown.
func TestAgentAnswersItsHost(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	root, err := controlplane.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), root+"/deploy/crds"); err != nil {
		t.Fatal(err)
	}
	f := fleet.ForTest(t, c, fleet.Options{Nodes: 2})
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	node, err := clients.CoreV1().Nodes().Get(t.Context(), f.Name(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := fettlev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hosts, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	host := &fettlev1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: f.Name(0)}, Spec: fettlev1alpha1.HostSpec{NodeUID: node.UID}}
	if err := hosts.Create(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	ready := func(ctx context.Context) bool {
		err := hosts.Get(ctx, client.ObjectKeyFromObject(host), host)
		return err == nil && len(host.Status.Conditions) == 1 && host.Status.Conditions[0].Status == metav1.ConditionTrue
	}
	await(t, "the agent reports on its Host", ready)
	if len(host.Status.ConditionTypes) != 3 || host.Status.Health.Counts.OK != 3 {
		t.Errorf("the Host says %+v", host.Status)
	}

	unknown := []byte(`{"status":{"conditions":[{"type":"fettle.dev/NetworkReady","status":"Unknown","reason":"AgentSilent"}]}}`)
	if _, err := clients.CoreV1().Nodes().Patch(t.Context(), f.Name(0), "application/strategic-merge-patch+json", unknown, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	host.Status.Conditions[0].Status, host.Status.Conditions[0].Reason = metav1.ConditionUnknown, fettlev1alpha1.ReasonHostStatusUnknown
	if err := hosts.Status().Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent says everything again", func(ctx context.Context) bool {
		node, err := clients.CoreV1().Nodes().Get(ctx, f.Name(0), metav1.GetOptions{})
		return err == nil && condition(node, fettlev1alpha1.ConditionNetworkReady).Status == corev1.ConditionTrue && ready(ctx)
	})
}

func condition(node *corev1.Node, name corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func await(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("did not come about: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
