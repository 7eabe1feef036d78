package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/test/await"
)

// cleanUp runs the command's work as the agent of a node, and gives what it said.
func (r *rig) cleanUp(t *testing.T, node, stateDir string, force, state bool) (said []string, err error) {
	t.Helper()
	err = Cleanup(t.Context(), CleanupOptions{
		Options: Options{
			Config:   config.Config{HostRoot: "/", StateDir: stateDir, Kubeconfig: r.agentKubeconfig},
			NodeName: node, Version: "cleanup", Getenv: func(string) string { return "" },
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		Force: force, State: state, Say: func(what string) { said = append(said, what) },
	})
	return said, err
}

// withdrawsEverything : also what the controller owns a part of since it called the agent silent.
func withdrawsEverything(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	p := startPart(t, r.agentKubeconfig, node, state)
	p.say(finding("Broken"))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	p.stop()
	r.fallSilent(t, node)
	again := startPart(t, r.agentKubeconfig, node, state)
	again.say(partly([]string{"StorageReady=True/OK"}, "Healthy", "NetworkReady")) // the rest is owned by both now
	r.awaitSaid(t, node, "Healthy=Unknown/AgentSilent NetworkReady=Unknown/AgentSilent StorageReady=True/OK")
	again.stop()
	lock, err := statefile.Lock(state) // as an agent does
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.cleanUp(t, node, state, true, true); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("beside an agent that runs: %v", err)
	}
	lock.Close()
	if err := os.WriteFile(filepath.Join(state, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	what, err := r.cleanUp(t, node, state, false, true)
	if err != nil {
		t.Fatalf("%v, after it said %q", err, what)
	}
	got := r.node(t, node)
	if said(got) != "" || condition(got, "Ready").Status != "True" || condition(got, "example.com/Foreign").Status != "False" {
		t.Errorf("node says %+v", got.Status.Conditions)
	}
	for _, m := range got.ManagedFields {
		if m.Manager == "fettle-nodeagent" || strings.Contains(m.FieldsV1.String(), "fettle.dev/") {
			t.Errorf("%s still owns %s", m.Manager, m.FieldsV1)
		}
	}
	if s := r.host(t, node).Status; s.Agent != nil || s.Health != nil || len(s.ConditionTypes) != 0 || len(s.Conditions) != 0 {
		t.Errorf("host says %+v", s)
	}
	if r.lease(t, node) != nil {
		t.Error("the lease is still there")
	}
	if left, err := os.ReadDir(state); err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("left in the state folder: %v, %v", left, err)
	}

	if what, err := r.cleanUp(t, node, state, false, true); err != nil || slices.ContainsFunc(what, func(s string) bool {
		return strings.HasPrefix(s, "removed") || strings.HasPrefix(s, "cleared") || strings.HasPrefix(s, "deleted")
	}) {
		t.Errorf("the second time it says %q, %v", what, err)
	}
}

// withdrawsFromNothing : a node, a Host and a Lease that do not exist need no withdrawing.
func withdrawsFromNothing(t *testing.T, r *rig, node string) {
	what, err := r.cleanUp(t, node, filepath.Join(t.TempDir(), "none"), false, true)
	if err != nil || len(what) != 4 {
		t.Errorf("it said %q, %v", what, err)
	}
}

// sparesALivingAgent : the agent runs elsewhere, with a state folder of its own.
func sparesALivingAgent(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	if what, err := r.cleanUp(t, node, t.TempDir(), false, false); err == nil || !strings.Contains(err.Error(), p.o.self.ID) || said(r.node(t, node)) != allWell {
		t.Errorf("said %q, %v; node says %s", what, err, said(r.node(t, node)))
	}
	if _, err := r.cleanUp(t, node, t.TempDir(), true, false); err != nil && !strings.Contains(err.Error(), "in a row") {
		t.Error(err)
	}
	r.awaitSaid(t, node, allWell) // it has said it all again
	p.stop()
	if what, err := r.cleanUp(t, node, t.TempDir(), false, false); err != nil || r.lease(t, node) != nil || said(r.node(t, node)) != "" {
		t.Errorf("of an agent that is gone it said %q, %v; node says %s", what, err, said(r.node(t, node)))
	}
}

func TestCleanupWithoutACluster(t *testing.T) {
	var what []string
	o := CleanupOptions{
		Options: Options{
			Config: config.Config{HostRoot: "/", StateDir: filepath.Join(t.TempDir(), "none")}, NodeName: "n",
			Getenv: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler),
		},
		Say: func(s string) { what = append(what, s) },
	}
	if err := Cleanup(context.Background(), o); err != nil || len(what) != 1 {
		t.Errorf("it said %q, %v", what, err)
	}
}

// TestUnderTheShippedPolicies : what the policies let an agent do is enough for it: to publish, to remove what the
// controller owns a part of, to tell, and to clean up.
func TestUnderTheShippedPolicies(t *testing.T) {
	r := newRig(t)
	const name = "n"
	node := r.createNode(t, name)
	r.createHost(t, name, node.UID)
	if err := r.Apply(t.Context(), "../../deploy/daemonset/15-policies.yaml"); err != nil {
		t.Fatal(err)
	}
	unbound := r.clientOf(t, r.agentKubeconfig)
	body, err := report.NodeStatus(name, node.UID, nil)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the policies are in force", func() bool {
		return apierrors.IsForbidden(unbound.ApplyNodeStatus(t.Context(), name, body, kubeclient.ApplyOptions{DryRun: true}))
	})
	if r.agentKubeconfig, err = r.ServiceAccountKubeconfig(t.Context(), "fettle-system", "nodeagent", node); err != nil {
		t.Fatal(err)
	}

	state := t.TempDir()
	p := startPart(t, r.agentKubeconfig, name, state)
	p.say(finding("Broken"))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, name)) == "True/HeartbeatReceived" })
	p.stop()
	r.fallSilent(t, name)
	p = startPart(t, r.agentKubeconfig, name, state)
	p.say(partly([]string{"StorageReady=True/OK"}, "Healthy"))
	r.awaitSaid(t, name, "Healthy=Unknown/AgentSilent StorageReady=True/OK")
	p.say(partly([]string{"StorageReady=True/OK"}))
	r.awaitSaid(t, name, "StorageReady=True/OK")
	network(p, "Broken")
	await.That(t, "it is told", func() bool { return len(r.events(t, name)) == 1 })
	p.stop()
	if what, err := r.cleanUp(t, name, state, false, false); err != nil || said(r.node(t, name)) != "" || r.lease(t, name) != nil || r.host(t, name).Status.Agent != nil {
		t.Errorf("it said %q, %v; node says %s", what, err, said(r.node(t, name)))
	}
}
