package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/e2e/stack"
	"github.com/fettle-dev/fettle/test/vm"
)

// unitConfig has a command that takes all the memory there is, a write check of a file system that is frozen later, and
// one that goes on meanwhile.
const unitConfig = `checks:
- name: cni-config
  interval: 1s
  timeout: 900ms
  failureThreshold: 1
  flapping: {changes: 0}
- name: glutton
  kind: exec
  command: [/usr/bin/tail, /dev/zero]
  interval: 30s
  timeout: 29s
  failureThreshold: 1
- name: scratch
  kind: mount
  path: /scratch
  writeCheck: true
  interval: 6s
  timeout: 5s
  failureThreshold: 1
  flapping: {changes: 0}
`

// TestUnitOnARealKernel runs the shipped unit where control groups are of version 2, which lets systemd bound memory and
// wait for every process of a unit. Machines of test/machines, which are containers, may not.
func TestUnitOnARealKernel(t *testing.T) {
	u := startUnit(t)
	t.Run("a command that takes all memory is killed alone", u.glutton)
	t.Run("a stop does not wait for what hangs in the kernel", u.hangsAtStop)
	t.Run("what a killed agent leaves behind is cleared away", u.killed)
}

// unit is a machine that belongs to no cluster and runs the shipped unit.
type unit struct{ vm *vm.VM }

func startUnit(t *testing.T) *unit {
	t.Helper()
	root, err := controlplane.RepoRoot()
	must(t, err)
	load := func(path string) []byte {
		content, err := os.ReadFile(root + "/" + path)
		must(t, err)
		return content
	}
	const units = "/etc/systemd/system/nodeagent.service"
	u := &unit{vm: vm.ForTest(t, vm.Options{Name: "unit1", Files: []vm.File{
		{Path: "/usr/bin/nodeagent", Content: load("bin/nodeagent"), Mode: 0o755},
		{Path: units, Content: load("packaging/systemd/nodeagent.service")},
		{Path: units + ".d/memory.conf", Content: []byte("[Service]\nMemoryMax=96M\n")},
		{Path: "/etc/fettle/nodeagent.yaml", Content: []byte(unitConfig)},
	}})}
	u.run(t, "truncate --size=16M /var/tmp/disk && mkfs.ext4 -q /var/tmp/disk && mkdir /scratch && mount -o loop /var/tmp/disk /scratch")
	u.run(t, "systemctl daemon-reload && systemctl start nodeagent.service")
	return u
}

func (u *unit) run(t *testing.T, script string) string {
	t.Helper()
	out, err := u.vm.Exec(t.Context(), "sh", "-euc", script)
	must(t, err)
	return strings.TrimSpace(out)
}

func (u *unit) await(t *testing.T, what string, look look) {
	t.Helper()
	must(t, stack.AwaitWithin(t.Context(), patience, what, look))
}

// says is a look at a check in what the agent answers.
func (u *unit) says(check, verdict, reason string) look {
	return func(ctx context.Context) error {
		out, err := u.vm.Exec(ctx, "sh", "-c", "nodeagent status --output=json || true")
		if err != nil {
			return err
		}
		var said struct {
			Health struct {
				Checks []struct{ Name, Verdict, Reason string }
			}
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return fmt.Errorf("nodeagent status: %w", err)
		}
		for _, c := range said.Health.Checks {
			if c.Name == check && (c.Verdict != verdict || c.Reason != reason) {
				return fmt.Errorf("%s is %s %s, want %s %s", check, c.Verdict, c.Reason, verdict, reason)
			}
			if c.Name == check {
				return nil
			}
		}
		return errors.New("there is no check " + check)
	}
}

func (u *unit) show(t *testing.T, properties string) string {
	t.Helper()
	return strings.Join(strings.Fields(u.run(t, "systemctl show --property="+properties+" nodeagent.service")), " ")
}

func (u *unit) glutton(t *testing.T) {
	before := u.show(t, "MainPID,NRestarts")
	u.await(t, "the command to be killed", u.says("glutton", "unknown", "ExecKilled"))
	killed := u.oomKills(t)
	if killed == "0" {
		t.Error("it was not the kernel that killed it")
	}
	must(t, u.vm.WriteFile(t.Context(), cniConfigPath, []byte("{"), 0o644))
	u.await(t, "another check to go on", u.says("cni-config", "fatal", "CNIConfigInvalid"))
	u.await(t, "the command to be killed again", func(context.Context) error {
		if u.oomKills(t) == killed {
			return errors.New("it was not")
		}
		return nil
	})
	must(t, u.says("glutton", "unknown", "ExecKilled")(t.Context()))
	if after := u.show(t, "MainPID,NRestarts"); after != before {
		t.Errorf("the unit was %s and is %s", before, after)
	}
	if got := u.show(t, "ActiveState,Result"); got != "Result=success ActiveState=active" {
		t.Errorf("the unit is %s", got)
	}
}

// oomKills is how many processes of the unit the kernel killed for memory.
func (u *unit) oomKills(t *testing.T) string {
	t.Helper()
	return u.run(t, "sed -n 's/^oom_kill //p' /sys/fs/cgroup$(systemctl show -P ControlGroup nodeagent.service)/memory.events")
}

// hangsAtStop : the prober hangs in a write to a frozen file system when the unit is stopped, and again when it is
// restarted, as by an upgrade.
func (u *unit) hangsAtStop(t *testing.T) {
	u.run(t, "fsfreeze --freeze /scratch")
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			u.run(t, "fsfreeze --unfreeze /scratch")
		}
	}
	defer thaw()
	u.await(t, "the write to hang", u.says("scratch", "fatal", "MountFrozen"))
	pid := u.show(t, "MainPID")
	u.run(t, "systemctl stop nodeagent.service")
	// Code 1 is CLD_EXITED: it ended by itself.
	want := "Result=success ExecMain" + strings.TrimPrefix(pid, "Main") + " ExecMainCode=1 ExecMainStatus=0 ActiveState=inactive"
	if got := u.show(t, "Result,ActiveState,ExecMainPID,ExecMainCode,ExecMainStatus"); got != want {
		t.Errorf("the unit ended with %s, want %s", got, want)
	}
	if left := u.run(t, "grep populated /sys/fs/cgroup/system.slice/nodeagent.service/cgroup.events"); left != "populated 1" {
		t.Errorf("the unit's control group is %s: the prober did not hang", left)
	}
	u.run(t, "systemctl start nodeagent.service")
	u.await(t, "the new agent to find it", u.says("scratch", "fatal", "MountFrozen"))
	thaw()
	u.await(t, "the mount to be well", u.says("scratch", "ok", "OK"))
}

// killed : what the commands of an agent that was killed have started ends too.
func (u *unit) killed(t *testing.T) {
	must(t, u.vm.WriteFile(t.Context(), "/etc/fettle/nodeagent.yaml", []byte(`checks:
- name: forks
  kind: exec
  command: [/bin/sh, -c, "setsid -f sleep 100001; touch /run/forked; sleep 100002"]
  interval: 1h
  timeout: 50m
`), 0o644))
	u.run(t, "systemctl restart --no-block nodeagent.service")
	forked := func(ctx context.Context) error {
		_, err := u.vm.ReadFile(ctx, "/run/forked")
		return err
	}
	u.await(t, "the command to fork", forked)
	before := u.run(t, "pgrep --full 'sleep 10000[12]'")
	u.run(t, "rm /run/forked; kill -KILL $(systemctl show -P MainPID nodeagent.service)")
	u.await(t, "the next agent's command to fork", forked)
	for pid := range strings.FieldsSeq(before) {
		if out, err := u.vm.Exec(t.Context(), "cat", "/proc/"+pid+"/cmdline"); err == nil {
			t.Errorf("process %s of the killed agent lives: %q", pid, out)
		}
	}
}
