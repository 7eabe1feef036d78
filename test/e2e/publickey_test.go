package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/sealing"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// TestPublicKey : the Host publishes the public half of a key that lies on the machine and stays over restarts, a kill and
// a reboot. A machine that lost its key publishes another.
func TestPublicKey(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one"}, AgentConfig: "heartbeat: {interval: 1s, leaseDuration: 4s, statusTimeout: 500ms}\n" + stack.DefaultAgentConfig,
	})
	one := s.Node("one")
	var last fettlev1alpha1.HostAgent
	// published is what the next agent publishes.
	published := func(when string) string {
		t.Helper()
		must(t, stack.Await(ctx, "an agent to report "+when, func(ctx context.Context) error {
			host, err := s.GetHost(ctx, "one")
			if err != nil {
				return err
			}
			if a := host.Status.Agent; a == nil || a.ID == last.ID {
				return errors.New("none has")
			}
			last = *host.Status.Agent
			return nil
		}))
		return last.PublicKey
	}
	key := published("at first")

	t.Run("what is sealed to it opens on the machine alone", func(t *testing.T) {
		place := sealing.Binding{NodeUID: "uid", Work: "work", Name: "name"}
		sealed, err := sealing.Seal(key, []byte("s3cret"), place)
		must(t, err)
		kept, err := one.Machine.ReadFile(ctx, stateDir+"/sealing.key")
		must(t, err)
		folder := t.TempDir()
		must(t, os.WriteFile(filepath.Join(folder, "sealing.key"), []byte(kept), 0o600))
		private, err := sealing.Load(folder)
		must(t, err)
		if opened, err := private.Open(sealed, place); err != nil || string(opened) != "s3cret" {
			t.Errorf("it opens as %q, error %v", opened, err)
		}
		other, err := sealing.LoadOrCreate(t.TempDir())
		must(t, err)
		if opened, err := other.Open(sealed, place); err == nil {
			t.Errorf("another key opens it as %q", opened)
		}
	})
	for _, tc := range []struct {
		name string
		end  func() error
		same bool
	}{
		{"after a restart", func() error { return errors.Join(one.StopAgent(ctx), one.StartAgent(ctx)) }, true},
		{"after a kill", func() error { return one.KillAgent(ctx) }, true},
		{"after a reboot", func() error { _, err := one.Machine.Reboot(ctx); return err }, true},
		{"with its state folder gone", func() error {
			return errors.Join(one.StopAgent(ctx), one.Machine.RemoveFile(ctx, stateDir), one.StartAgent(ctx))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			boot := last.BootID
			must(t, tc.end())
			switch now := published(tc.name); {
			case tc.same != (now == key):
				t.Errorf("the key was %q and is %q", key, now)
			case tc.name == "after a reboot" && last.BootID == boot:
				t.Errorf("the agent still tells of boot %s", boot)
			}
		})
	}
}
