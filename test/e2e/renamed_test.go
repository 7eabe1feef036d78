package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// TestRenamedNode : an agent whose token is bound to another node than the one it was told to speak for reaches neither,
// says so by both names and with what to do, and needs nothing but the correction. A Node that is renamed, which is a
// deletion and another Node, comes to the same.
func TestRenamedNode(t *testing.T) {
	ctx := t.Context()
	config := func(node string) string {
		return "nodeName: " + node + "\nkubeconfig: " + stack.KubeconfigPath +
			"\nheartbeat: {interval: 1s, leaseDuration: 4s, statusTimeout: 500ms}\n" + stack.DefaultAgentConfig
	}
	_, settings, _ := strings.Cut(config("one"), stack.KubeconfigPath+"\n")
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one"}, AgentConfig: settings, Audit: true})
	one := s.Node("one")
	well := func(node string) func(context.Context) error {
		return stack.All(
			s.Says(node, fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
			s.Says(node, agentReady, corev1.ConditionTrue, "OK"),
			s.HostReady(node, metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
		)
	}
	configure := func(node string) {
		t.Helper()
		must(t, one.Machine.WriteFile(ctx, stack.AgentConfigPath, config(node), 0o644))
		_, err := one.Machine.Exec(ctx, "systemctl", "restart", stack.AgentUnit)
		must(t, err)
	}
	deliver := func(node *corev1.Node) {
		t.Helper()
		kubeconfig, err := one.NewKubeconfig(ctx, node)
		must(t, err)
		must(t, one.Machine.WriteFile(ctx, stack.KubeconfigPath, kubeconfig, 0o600))
	}
	must(t, stack.Await(ctx, "one to be well", well("one")))
	two := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}}
	must(t, s.Client.Create(ctx, two))

	t.Run("the configuration names another node than the token", func(t *testing.T) {
		configure("two")
		must(t, stack.Await(ctx, "the fault to be told", saysForeign(one, "one", "two")))
		writesNothing(t, s)
		out, err := one.Machine.Exec(ctx, "nodeagent", "preflight", "--config="+stack.AgentConfigPath)
		if err == nil || !strings.Contains(out, "bound to node one and the agent speaks for node two") {
			t.Errorf("preflight (%v) does not say so:\n%s", err, out)
		}
		must(t, neverRestarted(one.Machine)(ctx))
		configure("one")
		must(t, stack.Await(ctx, "one to be well", well("one")))
		must(t, untouched(s, "two")(ctx))
	})

	t.Run("the token is that of another machine", func(t *testing.T) {
		deliver(two)
		must(t, stack.Await(ctx, "the fault to be told", saysForeign(one, "two", "one")))
		writesNothing(t, s)
		node, err := s.GetNode(ctx, "one")
		must(t, err)
		deliver(node)
		must(t, stack.Await(ctx, "one to be well", well("one")))
		must(t, neverRestarted(one.Machine)(ctx))
		must(t, untouched(s, "two")(ctx))
	})

	t.Run("the Node is renamed", func(t *testing.T) {
		must(t, one.StopKubelet())
		old, err := s.GetNode(ctx, "one")
		must(t, err)
		must(t, s.Client.Delete(ctx, old))
		must(t, stack.Await(ctx, "the token to be refused", statusSays(one, "the API server refuses the agent's token")))
		one.Name = "three"
		must(t, one.StartKubelet(t.Context()))
		three, err := one.Join(ctx)
		must(t, err)
		deliver(three)
		must(t, stack.Await(ctx, "the fault to be told", saysForeign(one, "three", "one")))
		must(t, stack.Await(ctx, "the old node's lease and host to go", gone(s, "one")))
		writesNothing(t, s)
		must(t, neverRestarted(one.Machine)(ctx))
		configure("three")
		must(t, stack.Await(ctx, "three to be well", well("three")))
		must(t, neverRestarted(one.Machine)(ctx))
		must(t, stack.All(gone(s, "one"), untouched(s, "two"))(ctx))
	})
}

// saysForeign is a look whether a person who asks the machine, asks for its status file or reads the journal is told of
// both nodes, and of what to do.
func saysForeign(n *stack.Node, bound, speaksFor string) func(context.Context) error {
	fault := fmt.Sprintf("the agent's token is bound to node %s and the agent speaks for node %s, so the API server refuses what it writes; "+
		"correct nodeName and restart the agent, or deliver a new one: kubectl create token nodeagent --namespace=fettle-system "+
		"--bound-object-kind=Node --bound-object-name=%s --duration=24h", bound, speaksFor, speaksFor)
	return stack.All(journalSays(n.Machine, fault), statusSays(n, fault), func(ctx context.Context) error {
		file, err := n.Machine.ReadFile(ctx, "/run/fettle/status.json")
		if err == nil && !strings.Contains(file, fault) {
			err = errors.New("the status file does not say so")
		}
		return err
	})
}

// statusSays is a look at what the agent answers on its machine.
func statusSays(n *stack.Node, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, _ := n.Machine.Exec(ctx, "nodeagent", "status") // its exit status is about the machine's health
		if !strings.Contains(out, text) {
			return fmt.Errorf("nodeagent status does not say %q:\n%s", text, out)
		}
		return nil
	}
}

// writesNothing fails the test when the API server takes a write of an agent within some beats, or is asked for none.
func writesNothing(t *testing.T, s *stack.Stack) {
	t.Helper()
	mark, err := s.ControlPlane.Mark()
	must(t, err)
	select {
	case <-time.After(6 * time.Second): // how long it is watched
	case <-t.Context().Done():
	}
	requests, err := s.ControlPlane.RequestsSince(mark)
	must(t, err)
	asked := 0
	for _, r := range requests {
		if r.User != "system:serviceaccount:fettle-system:nodeagent" {
			continue
		}
		asked++
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Code < 300 {
			t.Errorf("the API server took %s of %s %s", r.Verb, r.Resource, r.Name)
		}
	}
	if asked == 0 {
		t.Error("the agent asked the API server for nothing: it has given up")
	}
}

// untouched is a look at a node of which no agent has said anything.
func untouched(s *stack.Stack, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		node, err := s.GetNode(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if strings.HasPrefix(string(c.Type), fettlev1alpha1.ConditionPrefix) {
				return fmt.Errorf("node %s says %s %s", name, c.Type, c.Reason)
			}
		}
		host, err := s.GetHost(ctx, name)
		if err == nil && host.Status.Agent != nil {
			err = fmt.Errorf("host %s tells of agent %s", name, host.Status.Agent.ID)
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		var events eventsv1.EventList
		if err := s.Client.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Name == name && e.ReportingController == "fettle-nodeagent" {
				return fmt.Errorf("an event of node %s: %s", name, e.Note)
			}
		}
		return absent(ctx, s, &coordinationv1.Lease{}, client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: name})
	}
}

// gone is a look whether nothing is left of a node.
func gone(s *stack.Stack, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(
			absent(ctx, s, &corev1.Node{}, client.ObjectKey{Name: name}),
			absent(ctx, s, &fettlev1alpha1.Host{}, client.ObjectKey{Name: name}),
			absent(ctx, s, &coordinationv1.Lease{}, client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: name}),
		)
	}
}

func absent(ctx context.Context, s *stack.Stack, object client.Object, key client.ObjectKey) error {
	err := s.Client.Get(ctx, key, object)
	if err == nil {
		return fmt.Errorf("%T %s is there", object, key)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
