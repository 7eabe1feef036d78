package daemonset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// gluttonConfig has a command that takes all the memory there is. The image has none but the agent, so it is the
// machine's, with the machine's libraries.
const gluttonConfig = `checks:
- name: glutton
  kind: exec
  command: [/host/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2, --library-path, /host/usr/lib/x86_64-linux-gnu, /host/usr/bin/tail, /dev/zero]
  condition: fettle.dev/GluttonReady
  interval: 60s
  timeout: 59s
  failureThreshold: 1
`

// glutton : a command takes all the memory that the container may have. This machine's kubelet has singleProcessOOMKill
// set, and the kernel kills the command alone. Without it, which is a kubelet's default, it kills the container, and what
// is left to show is that the next agent goes on where this one was.
func glutton(t *testing.T, w *world) {
	before, restarts := w.agent(t), w.restarts(t)
	killed := w.oomKills(t)
	w.configure(t, gluttonConfig)
	w.await(t, "the command to be killed", w.Says(nodeName, "fettle.dev/GluttonReady", corev1.ConditionUnknown, "ExecKilled"))
	if now := w.oomKills(t); now == killed {
		t.Errorf("it was not the kernel that killed it: %s", now)
	}
	good, err := w.vm.ReadFile(t.Context(), cniConfigPath)
	must(t, err)
	must(t, w.vm.WriteFile(t.Context(), cniConfigPath, []byte("{"), 0o644))
	w.await(t, "another check to go on", w.Says(nodeName, conditionTypes[0], corev1.ConditionFalse, "CNIConfigInvalid"))
	must(t, w.vm.WriteFile(t.Context(), cniConfigPath, good, 0o644))
	if now := w.agent(t); now.ID != before.ID || w.restarts(t) != restarts {
		t.Errorf("agent %s runs after %d restarts, before it was %s after %d", now.ID, w.restarts(t), before.ID, restarts)
	}

	h := w.record(t)
	// What the kubelet does by default. It leaves alone who made the container, and the next container has its setting.
	w.guest(t, "sh", "-euc", "echo 1 > "+w.agentGroup(t)+"/memory.oom.group")
	w.await(t, "the container to be killed, and the next agent", w.spokenFor(before.ID, w.node(t)))
	status := w.agentPod(t).Status.ContainerStatuses[0]
	if last := status.LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" {
		t.Errorf("the container ended otherwise: %+v", status.LastTerminationState)
	}
	w.configure(t, "")
	w.await(t, "the machine to be well, and the condition to go", stack.All(w.well(), w.lacks("fettle.dev/GluttonReady")))
	for _, v := range h.read(t, w) {
		if v.node == nil {
			continue
		}
		if c := stack.FindCondition(v.node, conditionTypes[1]); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("what the first agent had found did not stand: %+v", c)
		}
	}
}

func (w *world) restarts(t *testing.T) int32 {
	t.Helper()
	return w.agentPod(t).Status.ContainerStatuses[0].RestartCount
}

// agentGroup is the folder of the agent's control group.
func (w *world) agentGroup(t *testing.T) string {
	t.Helper()
	var group string
	w.await(t, "the agent's control group", func(ctx context.Context) error {
		pid, err := w.agentPID(ctx)
		if err != nil {
			return err
		}
		line, err := w.vm.ReadFile(ctx, "/proc/"+pid+"/cgroup")
		if err != nil {
			return err
		}
		var found bool
		if group, found = strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); !found {
			return errors.New("the machine has control groups of version 1")
		}
		return nil
	})
	return "/sys/fs/cgroup" + group
}

// oomKills is the kernel's count of processes of the agent's container that it killed for memory.
func (w *world) oomKills(t *testing.T) string {
	t.Helper()
	return fmt.Sprint(strings.Fields(w.guest(t, "grep", "^oom_kill ", w.agentGroup(t)+"/memory.events")))
}
