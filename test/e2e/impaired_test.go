package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// TestImpairedHeartbeat : an agent that may no longer write its Lease counts as silent, and the node says why.
func TestImpairedHeartbeat(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one"}, ControllerArgs: []string{"--host-lifecycle-grace-period=10s"},
		AgentConfig: "heartbeat: {interval: 1s, leaseDuration: 4s, statusTimeout: 500ms}\n" + stack.DefaultAgentConfig,
	})
	well := stack.All(
		s.Says("one", agentReady, corev1.ConditionTrue, "OK"),
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
		s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
	)
	must(t, stack.Await(ctx, "one to be well", well))

	_, err := s.ControlPlane.Kubectl(ctx, "delete", "rolebinding", "nodeagent", "--namespace="+fettlev1alpha1.LeaseNamespace)
	must(t, err)
	impaired := stack.All(
		s.Says("one", agentReady, corev1.ConditionFalse, fettlev1alpha1.ReasonHeartbeatImpaired),
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionUnknown, fettlev1alpha1.ReasonAgentSilent),
		s.HostReady("one", metav1.ConditionUnknown, fettlev1alpha1.ReasonHostStatusUnknown),
	)
	must(t, stack.Await(ctx, "the node to say why its agent is silent", impaired))
	must(t, stack.Holds(ctx, 15*time.Second, impaired))

	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/daemonset/10-rights.yaml")))
	must(t, stack.Await(ctx, "one to be well", well))
}
