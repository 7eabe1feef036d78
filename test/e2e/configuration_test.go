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

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

const agentReady = "fettle.dev/AgentReady"

// TestConfigurationIsReloaded edits the configuration of an agent that runs, well and badly.
func TestConfigurationIsReloaded(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one"}})
	one := s.Node("one")
	good, err := one.Machine.ReadFile(ctx, stack.AgentConfigPath)
	must(t, err)
	edit := func(text string) {
		t.Helper()
		must(t, one.Machine.WriteFile(ctx, stack.AgentConfigPath, text, 0o644))
	}
	valid := s.Says("one", agentReady, corev1.ConditionTrue, "OK")
	well := stack.All(valid,
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
		s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
	)
	must(t, stack.Await(ctx, "one to be well", well))

	t.Run("a check of one's own appears as a condition, and goes with its entry", func(t *testing.T) {
		edit(good + "- name: marker\n  kind: file\n  condition: fettle.dev/RackReady\n  path: /etc/marker\n  interval: 1s\n  timeout: 500ms\n")
		must(t, stack.Await(ctx, "the new condition", s.Says("one", "fettle.dev/RackReady", corev1.ConditionFalse, "FileMissing")))
		must(t, one.Machine.WriteFile(ctx, "/etc/marker", "", 0o644))
		must(t, stack.Await(ctx, "the new condition to be well", s.Says("one", "fettle.dev/RackReady", corev1.ConditionTrue, "OK")))
		edit(good)
		must(t, stack.Await(ctx, "the condition to go", lacks(s, "one", "fettle.dev/RackReady")))
		must(t, well(ctx))
	})

	t.Run("a wrong one is named and changes nothing, also over a restart", func(t *testing.T) {
		cursor := journalCursor(t, one.Machine)
		edit(strings.Replace(good, "interval: 1s", "interval: often", 1))
		must(t, stack.Await(ctx, "the fault to be told", s.Says("one", agentReady, corev1.ConditionTrue, "ConfigurationInvalid")))
		must(t, stack.Await(ctx, "the journal to name the place", journalSays(one.Machine, stack.AgentConfigPath+":5", cursor)))
		must(t, one.BreakCNI(ctx))
		must(t, stack.Await(ctx, "the checks to go on", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid")))
		must(t, one.StopAgent(ctx))
		must(t, one.StartAgent(ctx))
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "the last good one to be in force", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK")))
		must(t, stack.Await(ctx, "the fault to be told", s.Says("one", agentReady, corev1.ConditionTrue, "ConfigurationInvalid")))
		must(t, neverRestarted(one.Machine)(ctx))
		edit(good)
		must(t, stack.Await(ctx, "one to be well", well))
	})

	t.Run("systemctl reload refuses a wrong one and takes a right one", func(t *testing.T) {
		edit(good + "surprise: true\n")
		if out, err := one.Machine.Exec(ctx, "systemctl", "reload", stack.AgentUnit); err == nil {
			t.Errorf("a wrong configuration was reloaded: %s", out)
		}
		before := configurationGeneration(t, one)
		edit(good + "- name: spare\n  kind: mount\n  path: /\n  disabled: true\n")
		_, err = one.Machine.Exec(ctx, "systemctl", "reload", stack.AgentUnit)
		must(t, err)
		must(t, stack.Await(ctx, "another generation", func(context.Context) error {
			if now := configurationGeneration(t, one); now == before {
				return errors.New("the configuration in force is still " + now)
			}
			return nil
		}))
		edit(good)
		must(t, stack.Await(ctx, "one to be well", well))
	})

	t.Run("gone, and back", func(t *testing.T) {
		must(t, one.Machine.RemoveFile(ctx, stack.AgentConfigPath))
		must(t, stack.Await(ctx, "the fault to be told", s.Says("one", agentReady, corev1.ConditionTrue, "ConfigurationInvalid")))
		must(t, stack.Holds(ctx, 3*time.Second, s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK")))
		edit(good)
		must(t, stack.Await(ctx, "one to be well", well))
	})
}

func configurationGeneration(t *testing.T, n *stack.Node) string {
	t.Helper()
	out, err := n.Machine.Exec(t.Context(), "sh", "-c", "nodeagent status --output=json | grep '\"generation\"'")
	must(t, err)
	return strings.TrimSpace(out)
}

// lacks is a look that is right when the node has no such condition.
func lacks(s *stack.Stack, node, condition string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := s.GetNode(ctx, node)
		if err != nil {
			return err
		}
		if c := stack.FindCondition(n, condition); c != nil {
			return fmt.Errorf("node %s says %s %s %s", node, condition, c.Status, c.Reason)
		}
		return nil
	}
}
