package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/sealing"
	"github.com/fettle-dev/fettle/test/await"
)

// TestPreflightInACluster : what preflight says of the API server, to agents of each kind, before and after the policies.
func TestPreflightInACluster(t *testing.T) {
	r := newRig(t)
	ours, other := r.createNode(t, "ours"), r.createNode(t, "other")
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	// ask is preflight's answer to the agent of node "ours" with a token bound to the node given.
	ask := func(t *testing.T, bound *corev1.Node) map[string]Finding {
		t.Helper()
		kubeconfig, err := r.ServiceAccountKubeconfig(t.Context(), "fettle-system", "nodeagent", bound)
		if err != nil {
			t.Fatal(err)
		}
		findings := map[string]Finding{}
		for _, f := range apiServer(t.Context(), Options{
			Config: config.Config{Kubeconfig: kubeconfig, StateDir: t.TempDir()}, NodeName: ours.Name, Version: "v1", Getenv: func(string) string { return "" },
		}, host) {
			findings[f.Need] = f
		}
		return findings
	}
	want := func(t *testing.T, findings map[string]Finding, need string, ok bool, says string) {
		t.Helper()
		f, found := findings[need]
		if !found || f.OK != ok || !strings.Contains(f.Detail, says) {
			t.Errorf("%q: %+v, want ok %t and %q", need, f, ok, says)
		}
	}

	t.Run("without the policies nothing is fenced", func(t *testing.T) {
		f := ask(t, ours)
		want(t, f, "fence to this node", false, "apply 15-policies.yaml")
		want(t, f, "write the lease", true, "")
	})
	if err := r.Apply(t.Context(), "../../deploy/daemonset/15-policies.yaml"); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the API server to hold by all policies", func() bool {
		f := ask(t, other)
		return !f["write the lease"].OK && !f["write the node's conditions"].OK && !f["write events"].OK && f["fence to this node"].OK
	})
	t.Run("an agent with its own token has all it needs", func(t *testing.T) {
		f := ask(t, ours)
		if len(f) != 11 {
			t.Errorf("%d findings: %+v", len(f), f)
		}
		for need := range f {
			want(t, f, need, true, "")
		}
		want(t, f, "own identity", true, "bound to node ours")
		want(t, f, "write the host's status", true, "not there yet")
		want(t, f, "fence to this node", true, "as it should be")
	})
	t.Run("when the host object is there, too", func(t *testing.T) {
		r.createHost(t, ours.Name, ours.UID)
		want(t, ask(t, ours), "write the host's status", true, "allowed (dry run)")
	})
	t.Run("an agent with a token of another node", func(t *testing.T) {
		f := ask(t, other)
		want(t, f, "own identity", false, "bound to node other and the agent speaks for node ours")
		for _, need := range []string{"write the lease", "write the host's status", "write the node's conditions", "write events"} {
			want(t, f, need, false, "the agent of node other may not write")
		}
	})
	t.Run("an agent with a token of no node", func(t *testing.T) {
		f := ask(t, nil)
		want(t, f, "own identity", false, "not bound to a Node")
		want(t, f, "write the lease", false, "names no node")
		want(t, f, "renew its token", true, "not needed")
	})
	t.Run("nothing was stored", func(t *testing.T) {
		if l := r.lease(t, ours.Name); l != nil {
			t.Errorf("there is a lease: %+v", l)
		}
		if s := said(r.node(t, ours.Name)); s != "" {
			t.Errorf("the node says %s", s)
		}
	})
}

func TestPreflightOfTheSealingKey(t *testing.T) {
	dir := t.TempDir()
	if f := sealingKey(dir); !f.OK || !strings.Contains(f.Detail, "none yet") {
		t.Errorf("without a key: %+v", f)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Error("it made one")
	}
	key, err := sealing.LoadOrCreate(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f := sealingKey(dir); !f.OK || !strings.Contains(f.Detail, key.PublicKey()) {
		t.Errorf("with a key: %+v", f)
	}
	if err := os.Truncate(filepath.Join(dir, "sealing.key"), 10); err != nil {
		t.Fatal(err)
	}
	if f := sealingKey(dir); f.OK || !strings.Contains(f.Detail, "restore the file") {
		t.Errorf("with a damaged key: %+v", f)
	}
}
