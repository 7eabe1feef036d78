package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// Taints of the example rules.
const (
	networkTaint = "readiness.k8s.io/network"
	storageTaint = "readiness.k8s.io/storage"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFromCheckToTaint follows one broken network configuration all the way, there and back, and one agent into silence.
func TestFromCheckToTaint(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one", "two"}, ControllerArgs: []string{"--host-lifecycle-grace-period=50s"}})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	one := s.Node("one")

	t.Run("well machines are reported and not tainted", func(t *testing.T) {
		for _, n := range []string{"one", "two"} {
			must(t, stack.Await(ctx, n+" to be well", stack.All(
				s.Says(n, fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
				s.Says(n, fettlev1alpha1.ConditionStorageReady, corev1.ConditionTrue, "OK"),
				s.Says(n, fettlev1alpha1.ConditionHealthy, corev1.ConditionTrue, "OK"),
				s.HostReady(n, metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
				s.Tainted(n, networkTaint, false), s.Tainted(n, storageTaint, false),
			)))
		}
	})

	t.Run("a broken network configuration taints its machine alone", func(t *testing.T) {
		must(t, one.BreakCNI(ctx))
		must(t, stack.Await(ctx, "the taint", stack.All(
			s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid"),
			s.Says("one", fettlev1alpha1.ConditionHealthy, corev1.ConditionFalse, "CNIConfigInvalid"),
			s.Says("one", fettlev1alpha1.ConditionStorageReady, corev1.ConditionTrue, "OK"),
			s.Tainted("one", networkTaint, true), s.Tainted("one", storageTaint, false),
		)))
		must(t, s.Tainted("two", networkTaint, false)(ctx))
		node, err := s.GetNode(ctx, "one")
		must(t, err)
		if message := stack.FindCondition(node, fettlev1alpha1.ConditionNetworkReady).Message; !strings.Contains(message, stack.CNIConfigPath) {
			t.Errorf("the message %q does not name the file %s", message, stack.CNIConfigPath)
		}
	})

	t.Run("kubectl get hosts says what is wrong", func(t *testing.T) {
		out, err := s.ControlPlane.Kubectl(ctx, "get", "hosts")
		must(t, err)
		for _, want := range []string{"Unhealthy", "CNIConfigInvalid", "Healthy"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
	})

	t.Run("kubectl describe node shows what its agent saw", func(t *testing.T) {
		must(t, stack.Await(ctx, "the event", func(context.Context) error {
			out, err := s.ControlPlane.Kubectl(ctx, "describe", "node", "one")
			if err == nil && (!strings.Contains(out, "CNIConfigInvalid") || !strings.Contains(out, "fettle-nodeagent")) {
				err = fmt.Errorf("it shows no event of the agent:\n%s", out)
			}
			return err
		}))
	})

	t.Run("its repair takes the taint away", func(t *testing.T) {
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "the taint to go", stack.All(
			s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"), s.Tainted("one", networkTaint, false))))
	})

	t.Run("a silent agent becomes Unknown and its machine is held", func(t *testing.T) {
		must(t, one.StopAgent(ctx))
		must(t, stack.Await(ctx, "Unknown", stack.All(
			s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionUnknown, fettlev1alpha1.ReasonAgentSilent),
			s.Says("one", fettlev1alpha1.ConditionStorageReady, corev1.ConditionUnknown, fettlev1alpha1.ReasonAgentSilent),
			s.Says("one", fettlev1alpha1.ConditionHealthy, corev1.ConditionUnknown, fettlev1alpha1.ReasonAgentSilent),
			s.HostReady("one", metav1.ConditionUnknown, fettlev1alpha1.ReasonHostStatusUnknown),
			s.Tainted("one", networkTaint, true),
		)))
		must(t, s.Tainted("one", storageTaint, false)(ctx)) // bootstrap is over
		must(t, s.HostReady("two", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived)(ctx))
	})

	t.Run("it comes back", func(t *testing.T) {
		must(t, one.StartAgent(ctx))
		must(t, stack.Await(ctx, "the agent to be heard", stack.All(
			s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
			s.Says("one", fettlev1alpha1.ConditionHealthy, corev1.ConditionTrue, "OK"),
			s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
			s.Tainted("one", networkTaint, false),
		)))
	})

	t.Run("a rebooted machine is right again, with another boot ID", func(t *testing.T) {
		before, err := s.GetHost(ctx, "one")
		must(t, err)
		bootID, err := one.Machine.Reboot(ctx)
		must(t, err)
		must(t, stack.Await(ctx, "the report after the reboot", func(ctx context.Context) error {
			host, err := s.GetHost(ctx, "one")
			if err != nil {
				return err
			}
			if host.Status.Agent.BootID != bootID {
				return fmt.Errorf("host one: boot ID %s, want %s", host.Status.Agent.BootID, bootID)
			}
			return nil
		}))
		if before.Status.Agent.BootID == bootID {
			t.Errorf("the boot ID is still %s", bootID)
		}
		must(t, stack.Await(ctx, "one to be well", stack.All(
			s.Says("one", fettlev1alpha1.ConditionHealthy, corev1.ConditionTrue, "OK"), s.Tainted("one", networkTaint, false))))
	})
}
