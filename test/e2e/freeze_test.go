package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// TestAFrozenAgentLooksBeforeItSpeaks : an agent is stopped until it counts as silent, its machine breaks meanwhile, and it
// goes on. What it had found before must not be said again: no version of the node may be well, or free.
func TestAFrozenAgentLooksBeforeItSpeaks(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one"},
		// A short lease, so that silence comes soon, and a long interval, so that no look comes by chance.
		AgentConfig: `heartbeat:
  interval: 2s
  leaseDuration: 8s
  statusTimeout: 1s
checks:
- name: cni-config
  interval: 10m
`,
		ControllerArgs: []string{"--host-lifecycle-grace-period=10s"},
	})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	must(t, stack.Await(ctx, "one to be well", stack.All(
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"), s.Tainted("one", networkTaint, false))))

	one := s.Node("one")
	signal := func(name string) {
		t.Helper()
		_, err := one.Machine.Exec(ctx, "systemctl", "kill", "--signal="+name, stack.AgentUnit)
		must(t, err)
	}
	signal("SIGSTOP")
	must(t, stack.Await(ctx, "silence", stack.All(
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionUnknown, fettlev1alpha1.ReasonAgentSilent), s.Tainted("one", networkTaint, true))))
	time.Sleep(5 * time.Second) // how long it is frozen is the thing varied: beyond what counts as a sleep
	must(t, one.BreakCNI(ctx))

	node, err := s.GetNode(ctx, "one")
	must(t, err)
	versions, err := s.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		ResourceVersion: node.ResourceVersion, FieldSelector: fields.OneTermEqualSelector("metadata.name", "one").String(),
	})
	must(t, err)
	defer versions.Stop()
	signal("SIGCONT")
	must(t, stack.Await(ctx, "the truth", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid")))
	for {
		var seen *corev1.Node
		select {
		case event := <-versions.ResultChan():
			seen, _ = event.Object.(*corev1.Node)
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		if seen == nil {
			t.Fatal("the watch ended early")
		}
		is := stack.FindCondition(seen, fettlev1alpha1.ConditionNetworkReady)
		if is == nil || is.Status == corev1.ConditionTrue {
			t.Fatalf("the node said %v although its machine was broken", is)
		}
		free := true
		for _, taint := range seen.Spec.Taints {
			free = free && taint.Key != networkTaint
		}
		if free {
			t.Fatalf("the node was free although its machine was broken: %v", seen.Spec.Taints)
		}
		if is.Status == corev1.ConditionFalse {
			break
		}
	}
	must(t, one.RepairCNI(ctx))
	must(t, neverRestarted(one.Machine)(ctx))
}
