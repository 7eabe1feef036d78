package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

const stateDir = "/var/lib/fettle"

// TestStateFolder : whatever becomes of the folder in which the agent keeps what it remembers, it reports what it finds,
// also after it was killed.
func TestStateFolder(t *testing.T) {
	ctx := t.Context()
	// An agent that does not know its predecessor waits for three beats to be missed.
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one"}, AgentConfig: "heartbeat: {interval: 1s, leaseDuration: 4s, statusTimeout: 500ms}\n" + stack.DefaultAgentConfig,
	})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	one := s.Node("one")
	run := func(script string) {
		t.Helper()
		_, err := one.Machine.Exec(ctx, "sh", "-ec", script)
		must(t, err)
	}
	well := stack.All(
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
		s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
		s.Tainted("one", networkTaint, false),
	)
	broken := stack.All(
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid"),
		s.Tainted("one", networkTaint, true),
	)
	must(t, stack.Await(ctx, "one to be well", well))

	for _, tc := range []struct{ name, harm, repair string }{
		{
			name:   "full",
			harm:   "mount -t tmpfs -o size=16k,mode=0700 state " + stateDir + "; dd if=/dev/zero of=" + stateDir + "/filler bs=4k 2>/dev/null || true",
			repair: "umount --lazy " + stateDir,
		},
		{
			name:   "read-only",
			harm:   "mount -t tmpfs -o size=1m,mode=0700,ro state " + stateDir,
			repair: "umount --lazy " + stateDir,
		},
		{
			name:   "full of garbage",
			harm:   "for f in " + stateDir + "/*.json " + stateDir + "/health.json " + stateDir + "/lease-holder.json; do head -c 1000 /dev/urandom > $f; done",
			repair: "true",
		},
		{
			name:   "truncated at a half",
			harm:   "for f in " + stateDir + "/*.json; do truncate --size=$(($(stat --format=%s $f) / 2)) $f; done",
			repair: "true",
		},
		{
			name:   "from a version that is newer",
			harm:   `for f in ` + stateDir + `/*.json; do echo '{"format":9999,"sha256":"","content":{}}' > $f; done`,
			repair: "true",
		},
		{name: "gone", harm: "rm -rf " + stateDir + "/*", repair: "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, one.StopAgent(ctx))
			run(tc.harm)
			must(t, one.BreakCNI(ctx))
			must(t, one.StartAgent(ctx))
			must(t, stack.Await(ctx, "the taint", broken))
			must(t, one.KillAgent(ctx))
			must(t, stack.Await(ctx, "another agent", activeAfterRestarts(one, 1)))
			must(t, one.RepairCNI(ctx))
			must(t, stack.Await(ctx, "one to be well", well))
			must(t, activeAfterRestarts(one, 1)(ctx))
			must(t, one.StopAgent(ctx))
			run(tc.repair)
			must(t, one.StartAgent(ctx))
			must(t, stack.Await(ctx, "one to be well", well))
		})
	}
}

// activeAfterRestarts is a look whether the agent runs and was restarted that often since it was started by hand.
func activeAfterRestarts(n *stack.Node, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := n.Machine.Exec(ctx, "systemctl", "show", "--property=NRestarts,ActiveState", stack.AgentUnit)
		if err != nil {
			return err
		}
		if !strings.Contains(out, "ActiveState=active") {
			return errors.New("the agent's unit is " + strings.TrimSpace(out))
		}
		if !strings.Contains(out, fmt.Sprintf("NRestarts=%d\n", want)) {
			return fmt.Errorf("the agent's unit is %s, want %d restarts", strings.TrimSpace(out), want)
		}
		return nil
	}
}
