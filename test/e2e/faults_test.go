package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
	"github.com/fettle-dev/fettle/test/machines"
)

// TestFaults : what can go wrong between an agent and its API server, one after the other on one machine.
func TestFaults(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one"}})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	one := s.Node("one")
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

	t.Run("API server five minutes away while the machine breaks: caught up with once it is back", func(t *testing.T) {
		s.ControlPlane.StopAPIServer()
		must(t, one.BreakCNI(ctx))
		must(t, stack.Await(ctx, "the agent to see it", journalSays(one.Machine, "CNIConfigInvalid")))
		select {
		case <-time.After(5 * time.Minute): // the time is the thing tested
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		must(t, neverRestarted(one.Machine)(ctx))
		must(t, s.ControlPlane.StartAPIServer(ctx))
		must(t, stack.Await(ctx, "the taint", broken))
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "one to be well", well))
	})

	t.Run("API server away when the agent starts: it checks, and joins later", func(t *testing.T) {
		must(t, one.StopAgent(ctx))
		s.ControlPlane.StopAPIServer()
		must(t, one.BreakCNI(ctx))
		cursor := journalCursor(t, one.Machine)
		must(t, one.StartAgent(ctx))
		must(t, stack.Await(ctx, "the agent to see it", journalSays(one.Machine, "CNIConfigInvalid", cursor)))
		must(t, s.ControlPlane.StartAPIServer(ctx))
		must(t, stack.Await(ctx, "the taint", broken))
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "one to be well", well))
	})

	for _, tc := range []struct {
		name string
		make func() error
	}{
		{"kubeconfig missing", func() error { return one.Machine.RemoveFile(ctx, stack.KubeconfigPath) }},
		{"kubeconfig is a folder", func() error {
			_, err := one.Machine.Exec(ctx, "sh", "-c", "rm -f "+stack.KubeconfigPath+" && mkdir "+stack.KubeconfigPath)
			return err
		}},
		{"kubeconfig is no YAML", func() error { return one.Machine.WriteFile(ctx, stack.KubeconfigPath, "{", 0o600) }},
	} {
		t.Run(tc.name+": the agent says so, checks on, and joins once it is good", func(t *testing.T) {
			good, err := one.Machine.ReadFile(ctx, stack.KubeconfigPath)
			must(t, err)
			must(t, one.StopAgent(ctx))
			must(t, tc.make())
			cursor := journalCursor(t, one.Machine)
			must(t, one.BreakCNI(ctx))
			must(t, one.StartAgent(ctx))
			must(t, stack.Await(ctx, "the agent to name the file", journalSays(one.Machine, stack.KubeconfigPath, cursor)))
			must(t, stack.Await(ctx, "the agent to look all the same", journalSays(one.Machine, "CNIConfigInvalid", cursor)))
			_, err = one.Machine.Exec(ctx, "rm", "-rf", stack.KubeconfigPath)
			must(t, err)
			must(t, one.Machine.WriteFile(ctx, stack.KubeconfigPath, good, 0o600))
			must(t, stack.Await(ctx, "the taint", broken))
			must(t, neverRestarted(one.Machine)(ctx))
			must(t, one.RepairCNI(ctx))
			must(t, stack.Await(ctx, "one to be well", well))
		})
	}

	t.Run("node deleted and recreated: reported and judged anew", func(t *testing.T) {
		must(t, one.BreakCNI(ctx))
		must(t, stack.Await(ctx, "the taint", broken))
		old, err := s.GetNode(ctx, "one")
		must(t, err)
		must(t, one.StopKubelet())
		must(t, s.Client.Delete(ctx, old))
		must(t, stack.Await(ctx, "the host to go", func(ctx context.Context) error {
			_, err := s.GetHost(ctx, "one")
			if err == nil {
				return errors.New("host one is still there")
			}
			return client.IgnoreNotFound(err)
		}))
		must(t, one.StartKubelet(t.Context()))
		node, err := one.Join(ctx)
		must(t, err)
		if node.UID == old.UID {
			t.Fatal("the node was not recreated")
		}
		// The old token died with the node it was bound to.
		kubeconfig, err := one.NewKubeconfig(ctx, node)
		must(t, err)
		must(t, one.Machine.WriteFile(ctx, stack.KubeconfigPath, kubeconfig, 0o600))
		must(t, stack.Await(ctx, "the taint on the new node", broken))
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "one to be well", well))
		must(t, neverRestarted(one.Machine)(ctx))
	})
}

// TestAgentBeforeNode : an agent whose Node is not there yet keeps looking, and reports once it is there and the agent was
// given a token that is bound to it.
func TestAgentBeforeNode(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one"}})
	one := s.Node("one")
	must(t, stack.Await(ctx, "one to be well", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK")))
	must(t, one.StopAgent(ctx))
	must(t, one.StopKubelet())
	node, err := s.GetNode(ctx, "one")
	must(t, err)
	must(t, s.Client.Delete(ctx, node))

	// A token that is bound to no node, since there is none: it lets the agent look, and write nothing.
	path, err := s.ControlPlane.ServiceAccountKubeconfig(ctx, "fettle-system", "nodeagent", nil)
	must(t, err)
	must(t, one.Machine.CopyIn(ctx, path, stack.KubeconfigPath))
	cursor := journalCursor(t, one.Machine)
	must(t, one.StartAgent(ctx))
	must(t, stack.Await(ctx, "the agent to wait", journalSays(one.Machine, "waiting for the node", cursor)))
	must(t, one.StartKubelet(t.Context()))
	node, err = one.Join(ctx)
	must(t, err)
	kubeconfig, err := one.NewKubeconfig(ctx, node)
	must(t, err)
	must(t, one.Machine.WriteFile(ctx, stack.KubeconfigPath, kubeconfig, 0o600))
	must(t, stack.Await(ctx, "the report", stack.All(
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
		s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
	)))
	must(t, neverRestarted(one.Machine)(ctx))
}

// journalSays is a look at the agent's journal, from a cursor on when one is given.
func journalSays(m *machines.Machine, text string, after ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		args := []string{"journalctl", "--no-pager", "--output=export", "--unit=" + stack.AgentUnit}
		for _, cursor := range after {
			args = append(args, "--after-cursor="+cursor)
		}
		out, err := m.Exec(ctx, args...)
		if err != nil {
			return err
		}
		if !strings.Contains(out, text) {
			return fmt.Errorf("the agent's journal does not say %q", text)
		}
		return nil
	}
}

func journalCursor(t *testing.T, m *machines.Machine) string {
	t.Helper()
	out, err := m.Exec(t.Context(), "journalctl", "--no-pager", "--lines=0", "--show-cursor")
	must(t, err)
	_, cursor, found := strings.Cut(strings.TrimSpace(out), "-- cursor: ")
	if !found {
		t.Fatalf("no cursor in %q", out)
	}
	return cursor
}

// neverRestarted is a look at systemd's count of restarts of the agent since it was last started by hand.
func neverRestarted(m *machines.Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := m.Exec(ctx, "systemctl", "show", "--property=NRestarts", "--value", stack.AgentUnit)
		if err != nil {
			return err
		}
		if n := strings.TrimSpace(out); n != "0" {
			return fmt.Errorf("the agent was restarted %s times", n)
		}
		return nil
	}
}
