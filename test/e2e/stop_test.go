package e2e

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/test/e2e/stack"
	"github.com/fettle-dev/fettle/test/machines"
	"github.com/fettle-dev/fettle/test/relay"
)

// stopConfig has a command that ignores SIGTERM, as do what it starts in its group and what flees from it; a write check
// whose mount is frozen; a check that only a reboot clears; and one that changes.
const stopConfig = `heartbeat: {interval: 2s, leaseDuration: 8s, statusTimeout: 1s}
checks:
- name: cni-config
  interval: 1s
  timeout: 900ms
  failureThreshold: 1
- name: stubborn
  kind: exec
  command: [/bin/sh, -c, "trap '' TERM; sleep 100001 & setsid -f sleep 100002; touch /run/stubborn; sleep 100003"]
  interval: 1h
  timeout: 50m
  condition: fettle.dev/StubbornReady
- name: scratch
  kind: mount
  path: /scratch
  writeCheck: true
  interval: 1h
  timeout: 50m
  condition: fettle.dev/ScratchReady
- name: relic
  kind: file
  path: /etc/relic
  clearing: reboot
  interval: 1s
  timeout: 500ms
  failureThreshold: 1
  condition: fettle.dev/RelicReady
`

// TestSIGTERMInMidCycle stops the unit while everything hangs that can, and what is known of the checks is not on disk yet.
func TestSIGTERMInMidCycle(t *testing.T) {
	ctx := t.Context()
	scratch, freeze, thaw := freezableDisk(t)
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one"}, AgentConfig: stopConfig,
		Binds: []machines.Bind{{Source: scratch, Target: "/scratch", Writable: true}},
	})
	t.Cleanup(thaw) // before the machine is removed, which waits for its processes
	one := s.Node("one")
	run := func(script string) string {
		t.Helper()
		out, err := one.Machine.Exec(ctx, "sh", "-ec", script)
		must(t, err)
		return strings.TrimSpace(out)
	}
	path := relayed(t, s, one)
	broken := s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid")
	latched := s.Says("one", "fettle.dev/RelicReady", corev1.ConditionFalse, "FileMissing")

	must(t, one.StopAgent(ctx))
	freeze()
	run("rm -f /run/stubborn; systemctl start --no-block " + stack.AgentUnit)
	must(t, stack.Await(ctx, "the machine to be reported on", stack.All(latched,
		s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, ""))))
	must(t, stack.Await(ctx, "the command and the write check to hang", func(ctx context.Context) error {
		_, err := one.Machine.ReadFile(ctx, "/run/stubborn")
		if all := processes(t, one); err == nil && !strings.Contains(all, "D fettle-prober") {
			err = errors.New("no prober hangs in the kernel:\n" + all)
		}
		return err
	}))
	run("touch /etc/relic")
	// What changes from here on cannot be kept, until just before the end.
	const inTheWay = stateDir + "/.health.json.tmp" // where a save begins
	run("mkdir --parents " + inTheWay + "/full")    // an empty folder would be cleared away
	must(t, one.BreakCNI(ctx))
	must(t, stack.Await(ctx, "the failed save", journalSays(one.Machine, "cannot be kept over a restart")))
	must(t, stack.Await(ctx, "the change to be published", broken))
	run("rm --recursive " + inTheWay)
	path.SwallowAll()
	must(t, stack.Await(ctx, "calls to hang", journalSays(one.Machine, "context deadline exceeded")))

	pid := run("systemctl show --property=MainPID --value " + stack.AgentUnit)
	must(t, one.StopAgent(ctx))
	// Code 1 is CLD_EXITED: it ended by itself.
	ended := run("systemctl show --property=Result,ExecMainPID,ExecMainCode,ExecMainStatus,ActiveState " + stack.AgentUnit)
	for _, want := range []string{"Result=success", "ExecMainPID=" + pid, "ExecMainCode=1", "ExecMainStatus=0", "ActiveState=inactive"} {
		if !slices.Contains(strings.Fields(ended), want) {
			t.Errorf("the unit ended without %s:\n%s", want, ended)
		}
	}
	t.Run("nothing of it is left but what hangs in the kernel", func(t *testing.T) {
		for line := range strings.Lines(processes(t, one)) {
			if line = strings.TrimSpace(line); line != "D fettle-prober" {
				t.Errorf("there is still %s", line)
			}
		}
		thaw()
		must(t, stack.Await(ctx, "the prober to go", func(context.Context) error {
			if left := processes(t, one); left != "" {
				return errors.New(left)
			}
			return nil
		}))
	})
	t.Run("its memory is whole and has the last verdicts", func(t *testing.T) {
		known := remembered(t, one)
		if c := known["cni-config"]; c.Verdict != health.Fatal || c.Reason != "CNIConfigInvalid" {
			t.Errorf("of the network it holds %+v", c)
		}
		if c := known["relic"]; c.Latch == nil || c.Verdict != health.Fatal {
			t.Errorf("of the relic it holds %+v", c)
		}
		if c, ok := known["stubborn"]; ok {
			t.Errorf("the command came to no verdict, and it holds %+v", c)
		}
	})
	t.Run("the next start honours it", func(t *testing.T) {
		path.Cut(false)
		run("rm -f /run/stubborn; systemctl start --no-block " + stack.AgentUnit)
		must(t, one.RepairCNI(ctx))
		must(t, stack.Await(ctx, "the network to be well", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK")))
		must(t, stack.Await(ctx, "the write check to succeed", s.Says("one", "fettle.dev/ScratchReady", corev1.ConditionTrue, "OK")))
		must(t, stack.Holds(ctx, 3*time.Second, latched))
		_, err := one.Machine.Reboot(ctx)
		must(t, err)
		must(t, stack.Await(ctx, "the relic to be well after a reboot", s.Says("one", "fettle.dev/RelicReady", corev1.ConditionTrue, "OK")))
	})
}

// relayed leads the agent's way to the API server through a relay.
func relayed(t *testing.T, s *stack.Stack, n *stack.Node) *relay.Relay {
	t.Helper()
	server, err := url.Parse(s.ControlPlane.Config().Host)
	must(t, err)
	path := relay.ForTest(t, server.Host)
	kubeconfig, err := n.Machine.ReadFile(t.Context(), stack.KubeconfigPath)
	must(t, err)
	must(t, n.Machine.WriteFile(t.Context(), stack.KubeconfigPath, strings.Replace(kubeconfig, server.Host, path.Address(), 1), 0o600))
	return path
}

// processes of the agent's unit, and of what its commands start, a line each that begins with D when one of its threads
// hangs in the kernel.
func processes(t *testing.T, n *stack.Node) string {
	t.Helper()
	const script = `for p in /proc/[0-9]*; do
	state=-; grep -q ') D ' $p/task/*/stat && state=D
	echo "$state $(tr '\0' ' ' < $p/cmdline)"
done 2>/dev/null; true`
	out, err := n.Machine.Exec(t.Context(), "sh", "-c", script)
	must(t, err)
	var ours []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		_, command, _ := strings.Cut(line, " ")
		if strings.HasPrefix(command, "/usr/bin/nodeagent run") || strings.HasPrefix(command, "fettle-") || strings.Contains(command, "sleep 10000") {
			ours = append(ours, line)
		}
	}
	return strings.Join(ours, "\n")
}

// remembered is what the agent of a machine keeps of its checks over a restart.
func remembered(t *testing.T, n *stack.Node) map[string]health.Remembered {
	t.Helper()
	text, err := n.Machine.ReadFile(t.Context(), stateDir+"/health.json")
	must(t, err)
	copied := filepath.Join(t.TempDir(), "health.json")
	must(t, os.WriteFile(copied, []byte(text), 0o600))
	var snapshot health.Snapshot
	must(t, statefile.Read(copied, 1, &snapshot))
	known := map[string]health.Remembered{}
	for _, c := range snapshot.Checks {
		known[c.Check] = c
	}
	return known
}

// freezableDisk is an ext4 file system; while it is frozen no write to it returns, and whoever writes cannot be killed. The
// caller thaws it.
func freezableDisk(t *testing.T) (folder string, freeze, thaw func()) {
	t.Helper()
	image, folder := filepath.Join(t.TempDir(), "disk.img"), t.TempDir()
	command := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	command("truncate", "--size=16M", image)
	command("mkfs.ext4", "-q", image)
	command("mount", "-o", "loop", image, folder)
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	frozen := false
	freeze = func() { frozen = true; command("fsfreeze", "--freeze", folder) }
	thaw = func() {
		if frozen {
			frozen = false
			command("fsfreeze", "--unfreeze", folder)
		}
	}
	return folder, freeze, thaw
}
