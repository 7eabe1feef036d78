package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// clockJumps : whoever watches the agent watches it with another clock, and what it remembers is told by spans of time.
func clockJumps(t *testing.T, w *world) {
	h := w.record(t)
	for _, jump := range []string{"+2 hours", "-2 hours"} {
		so := beatsOf(h)
		w.guest(t, "date", "--set", jump)
		w.await(t, "beats after a jump of "+jump, func(context.Context) error {
			if n := beatsOf(h) - so; n < 3 {
				return fmt.Errorf("%d beats, want 3", n)
			}
			return nil
		})
		must(t, w.well()(t.Context()))
	}
	neverSilent(t, h.read(t, w))
}

func beatsOf(h *history) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return beats(h.versions)
}

// askedAndConfigured : `nodeagent status` in the pod, and an edit of the ConfigMap that the kubelet brings to the pod.
func askedAndConfigured(t *testing.T, w *world) {
	type status struct {
		Agent         struct{ ID string }
		Configuration struct {
			Generation int
			Fault      string
		}
		Health  struct{ Status string }
		Cluster struct {
			Lease      struct{ Held bool }
			Publishing struct{ Current bool }
		}
	}
	ask := func() (s status) {
		t.Helper()
		out := w.kubectl(t, "exec", "--namespace="+namespace, "daemonset/nodeagent", "--", "/usr/bin/nodeagent", "status", "--output=json")
		must(t, json.Unmarshal([]byte(out), &s))
		return s
	}
	if s := ask(); s.Agent.ID != w.agent(t).ID || s.Health.Status != "Degraded" || !s.Cluster.Lease.Held || !s.Cluster.Publishing.Current {
		t.Errorf("the agent says %+v", s)
	}
	if out := w.guest(t, "cat", "/run/fettle/status.json"); !strings.Contains(out, w.agent(t).ID) {
		t.Errorf("the machine's own status file says %s", out)
	}

	before := w.agent(t)
	w.configure(t, "checks:\n- name: clock\n  severity: info\n- name: rack\n  kind: file\n  path: /etc/hostname\n  condition: fettle.dev/RackReady\n")
	w.await(t, "the new condition", stack.All(
		w.Says(nodeName, "fettle.dev/RackReady", corev1.ConditionTrue, "OK"),
		w.Says(nodeName, "fettle.dev/KernelReady", corev1.ConditionTrue, "OK"),
	))
	w.configure(t, "checks:\n- name: clock\n  severity: loud\n")
	w.await(t, "the fault to be told", w.Says(nodeName, "fettle.dev/AgentReady", corev1.ConditionTrue, "ConfigurationInvalid"))
	if message := stack.FindCondition(w.node(t), "fettle.dev/AgentReady").Message; !strings.Contains(message, "/etc/fettle/nodeagent.yaml:3: checks[clock].severity") {
		t.Errorf("the message does not name the place: %s", message)
	}
	must(t, w.Says(nodeName, "fettle.dev/RackReady", corev1.ConditionTrue, "OK")(t.Context()))
	w.configure(t, "")
	w.await(t, "the machine to be well, and the condition to go", stack.All(w.well(), w.lacks("fettle.dev/RackReady")))
	if now := w.agent(t); now.ID != before.ID {
		t.Errorf("another agent runs, %s, where %s did", now.ID, before.ID)
	}
}

// configure writes the agents' nodeagent.yaml into its ConfigMap.
func (w *world) configure(t *testing.T, text string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"data": map[string]string{"nodeagent.yaml": text + "\n# edited\n"}})
	must(t, err)
	w.kubectl(t, "patch", "configmap", "nodeagent-config", "--namespace="+namespace, "--patch="+string(body))
}

func (w *world) lacks(condition string) look {
	return func(ctx context.Context) error {
		node, err := w.GetNode(ctx, nodeName)
		if err == nil && stack.FindCondition(node, condition) != nil {
			err = errors.New("the node still says " + condition)
		}
		return err
	}
}

// removal runs the commands of docs/daemonset.md that end with nothing of the product left.
func removal(t *testing.T, w *world) {
	page, err := os.ReadFile(w.Path("docs/daemonset.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(page), "## Removing it")
	var commands []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    $ kubectl "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the page has the commands %q, want two", commands)
	}
	w.kubectl(t, "delete", "nodereadinessrules", "--all")
	w.shell(t, commands[0])
	var looks []look
	for _, name := range conditionTypes {
		looks = append(looks, w.lacks(name))
	}
	looks = append(looks, func(ctx context.Context) error {
		host, err := w.GetHost(ctx, nodeName)
		if err == nil && host.Status.Agent != nil {
			err = errors.New("the host still tells of an agent")
		}
		return err
	}, func(ctx context.Context) error {
		if _, err := w.lease(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the lease is still there (%w)", err)
		}
		return nil
	})
	w.await(t, "everything to be withdrawn", stack.All(looks...))
	w.shell(t, commands[1])
	w.await(t, "the pods to end", func(ctx context.Context) error {
		pods, err := w.pods(ctx, "nodeagent")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods of the agent are left", len(pods))
		}
		return err
	})
	if node := w.node(t); len(node.Spec.Taints) != 0 {
		t.Errorf("the node has the taints %v", node.Spec.Taints)
	}
}

// shell runs the rest of a kubectl command line of the documentation in the checkout.
func (w *world) shell(t *testing.T, arguments string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", "kubectl "+arguments)
	cmd.Dir = w.Path(".")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.ControlPlane.Kubeconfig(), "PATH="+w.ControlPlane.BinDir()+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", arguments, err, out)
	}
}
