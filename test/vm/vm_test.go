package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// agentPod selects the DaemonSet's pod; workloadPath is where its image has the program, as the agent's image has it.
const (
	agentNamespace = "--namespace=fettle-system"
	workloadPath   = "/usr/bin/nodeagent"
)

// TestMachine shares one machine, and goes on with it from part to part: booting is slow.
func TestMachine(t *testing.T) {
	checkout, err := controlplane.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true, Scheduler: true, HostAliases: map[string]string{"vm1": "127.0.0.1"}})
	if err := c.Apply(t.Context(), filepath.Join(checkout, "deploy/daemonset")); err != nil {
		t.Fatal(err)
	}
	workload, err := Image(t.Context(), t.TempDir(), Program{Tag: "fettle.dev/nodeagent:dev", Package: "./test/vm/workload", Path: workloadPath})
	if err != nil {
		t.Fatal(err)
	}
	v := ForTest(t, Options{ControlPlane: c, Images: []string{workload}})
	t.Logf("QEMU's resident memory: %s", resident(t, v.PID()))

	part := func(name string, test func(*testing.T, *controlplane.ControlPlane, *VM)) {
		if !t.Run(name, func(t *testing.T) { test(t, c, v) }) {
			t.FailNow() // the parts after it stand on it
		}
	}
	part("commands in the guest", testExec)
	part("the DaemonSet's pod runs", testPodRuns)
	part("kubectl logs and exec", testLogsAndExec)
	part("the service address answers while kube-proxy works", testServiceProxy)
	part("reboot", testReboot)
	part("power cut", testPowerCut)
}

func testExec(t *testing.T, _ *controlplane.ControlPlane, v *VM) {
	ctx := t.Context()
	out, err := v.Exec(ctx, "printf", "%s|", "two words", "$HOME", "")
	if err != nil || out != "two words|$HOME||" {
		t.Errorf("arguments arrive as %q, error %v", out, err)
	}
	var failed *ExitError
	if _, err := v.Exec(ctx, "sh", "-c", "echo said; echo complained >&2; exit 3"); !errors.As(err, &failed) ||
		failed.Code != 3 || failed.Stdout != "said\n" || failed.Stderr != "complained\n" {
		t.Errorf("a failing command gives %#v", err)
	}
	if _, err := v.Exec(ctx, "sh", "-c", "kill -TERM $$"); !errors.As(err, &failed) || failed.Signal != int(syscall.SIGTERM) {
		t.Errorf("a killed command gives %#v", err)
	}
	if _, err := v.Exec(ctx, "/no/such/program"); err == nil {
		t.Error("a program that does not exist gives no error")
	}

	content := []byte(strings.Repeat("all bytes: \x00\xff\n", 100_000))
	if err := v.WriteFile(ctx, "/var/tmp/new folder/file", content, 0o640); err != nil {
		t.Fatal(err)
	}
	if back, err := v.ReadFile(ctx, "/var/tmp/new folder/file"); err != nil || string(back) != string(content) {
		t.Errorf("%d bytes were written, %d read, error %v", len(content), len(back), err)
	}
	if mode, err := v.Exec(ctx, "stat", "--format=%a %U", "/var/tmp/new folder/file"); err != nil || mode != "640 root\n" {
		t.Errorf("mode and owner are %q, error %v", mode, err)
	}

	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := v.Exec(short, "sleep", "123456"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command cut short gives %v", err)
	}
	await(t, v, "the cut command's end", func(ctx context.Context) (bool, error) {
		_, err := v.Exec(ctx, "pgrep", "--exact", "--full", "sleep 123456")
		return errors.As(err, &failed) && failed.Code == 1, err
	})
}

func testPodRuns(t *testing.T, c *controlplane.ControlPlane, v *VM) {
	awaitPod(t, c, v)
}

func testLogsAndExec(t *testing.T, c *controlplane.ControlPlane, _ *VM) {
	logs, err := c.Kubectl(t.Context(), "logs", agentNamespace, "daemonset/nodeagent")
	if err != nil || logs != "workload runs on vm1\n" {
		t.Errorf("logs are %q, error %v", logs, err)
	}
	out, err := c.Kubectl(t.Context(), "exec", agentNamespace, "daemonset/nodeagent", "--", workloadPath, "privileges")
	if err != nil {
		t.Errorf("the pod cannot do what the agent must, or can do what it must not: %v\n%s", err, out)
	}
}

func testServiceProxy(t *testing.T, _ *controlplane.ControlPlane, v *VM) {
	ctx := t.Context()
	awaitServiceAddress(t, v)
	if err := v.BreakServiceProxy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := dialServiceAddress(ctx, v); err == nil {
		t.Error("the service address answers without kube-proxy's rules")
	}
	if _, err := v.Exec(ctx, "bash", "-c", fmt.Sprintf("echo > /dev/tcp/%s/%s", hostAddress, apiPort(t, v))); err != nil {
		t.Errorf("the API server's own address must answer all the same: %v", err)
	}
	if err := v.RepairServiceProxy(ctx); err != nil {
		t.Fatal(err)
	}
	awaitServiceAddress(t, v)
}

func testReboot(t *testing.T, c *controlplane.ControlPlane, v *VM) {
	before, err := v.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := v.Reboot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after == before || after == "" {
		t.Fatalf("boot ID is %q as before", after)
	}
	awaitRunningAgain(t, c, v, after)
}

func testPowerCut(t *testing.T, c *controlplane.ControlPlane, v *VM) {
	before, err := v.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Exec(t.Context(), "sh", "-euc", "echo kept >/var/tmp/synced; sync /var/tmp/synced /var/tmp; echo gone >/var/tmp/unsynced"); err != nil {
		t.Fatal(err)
	}
	v.Kill()
	if v.running() {
		t.Fatal("QEMU still runs")
	}
	if err := v.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, err := v.ReadFile(t.Context(), "/var/tmp/synced"); err != nil || string(kept) != "kept\n" {
		t.Errorf("what was synced reads %q, error %v", kept, err)
	}
	if left, err := v.ReadFile(t.Context(), "/var/tmp/unsynced"); err == nil && string(left) == "gone\n" {
		t.Error("what was not synced has survived: this was no power cut")
	}
	after, err := v.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after == before {
		t.Fatalf("boot ID is %q as before", after)
	}
	awaitRunningAgain(t, c, v, after)
}

// awaitRunningAgain waits until the Node tells of the boot and the pod has been started in it.
func awaitRunningAgain(t *testing.T, c *controlplane.ControlPlane, v *VM, boot string) {
	t.Helper()
	if err := v.AwaitNodeReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	told, err := c.Kubectl(t.Context(), "get", "node", v.Name(), "--output=jsonpath={.status.nodeInfo.bootID}")
	if err != nil || told != boot {
		t.Fatalf("the Node's boot ID is %q, error %v; want %s", told, err, boot)
	}
	awaitPod(t, c, v)
	awaitServiceAddress(t, v)
}

// awaitPod waits until containerd runs the DaemonSet's container and the API server says so. The status at the API
// server may be of the boot before; containerd's is not.
func awaitPod(t *testing.T, c *controlplane.ControlPlane, v *VM) {
	t.Helper()
	await(t, v, "the DaemonSet's pod", func(ctx context.Context) (bool, error) {
		tasks, err := v.Exec(ctx, "pgrep", "--exact", "--full", workloadPath+" run --config=/etc/fettle/nodeagent.yaml")
		if err != nil {
			return false, fmt.Errorf("its process: %w", err)
		}
		ready, err := c.Kubectl(ctx, "get", "pods", agentNamespace, "--output=jsonpath={.items[*].status.containerStatuses[*].ready}")
		return ready == "true", errors.Join(err, fmt.Errorf("process %q, ready %q", tasks, ready))
	})
}

func awaitServiceAddress(t *testing.T, v *VM) {
	t.Helper()
	await(t, v, "an answer of the service address", func(ctx context.Context) (bool, error) {
		err := dialServiceAddress(ctx, v)
		return err == nil, err
	})
}

// dialServiceAddress opens a TCP connection from the guest to the Service kubernetes.default.
func dialServiceAddress(ctx context.Context, v *VM) error {
	_, err := v.Exec(ctx, "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/10.0.0.1/443")
	return err
}

func apiPort(t *testing.T, v *VM) string {
	t.Helper()
	_, port, found := strings.Cut(strings.TrimPrefix(v.opts.ControlPlane.Config().Host, "https://"), ":")
	if !found {
		t.Fatalf("no port in %s", v.opts.ControlPlane.Config().Host)
	}
	return port
}

func await(t *testing.T, v *VM, what string, look func(context.Context) (bool, error)) {
	t.Helper()
	if err := v.await(t.Context(), readyLimit, what, look); err != nil {
		t.Fatal(err)
	}
}

// resident is a process's resident memory as the kernel prints it.
func resident(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
