package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
	"github.com/fettle-dev/fettle/test/process"
)

// containerd is the real one, with folders and a socket of its own.
type containerd struct {
	host
	command []string
	running *process.Process
}

const cniConfiguration = `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "loopback"}]}`

func startContainerd(t *testing.T) *containerd {
	t.Helper()
	binary, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatalf("this test needs containerd: apt-get install containerd: %v", err)
	}
	c := &containerd{host: newHost(t)}
	c.write("/etc/containerd/config.toml", `version = 2
root = "`+c.path("/root")+`"
state = "`+c.path("/state")+`"
[grpc]
address = "`+c.path(containerdSocket)+`"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "`+c.path("/etc/cni/net.d")+`"
bin_dir = "`+c.path("/opt/cni/bin")+`"
[plugins."io.containerd.internal.v1.opt"]
path = "`+c.path("/opt/containerd")+`"
`)
	c.command = []string{binary, "--config", c.path("/etc/containerd/config.toml")}
	if err := os.MkdirAll(c.path("/etc/cni/net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() { c.running.Kill() })
	return c
}

func (c *containerd) start() {
	c.t.Helper()
	p, err := process.Start(process.Spec{Command: c.command, Log: filepath.Join(c.dir, "containerd.log")})
	if err != nil {
		c.t.Fatal(err)
	}
	c.running = p
}

// awaitReason looks until the probe comes to the reason.
func (c *containerd) awaitReason(p probes.Probe, reason string) health.Result {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := look(c.t, p, 10*time.Second)
		if got.Reason == reason {
			return got
		}
		if err := c.running.Failure(); err != nil && reason == health.ReasonOK || time.Now().After(deadline) {
			c.t.Fatalf("got %+v, want %s; %v", got, reason, err)
		}
	}
}

// lookShort is a look that is to run into its timeout.
func (c *containerd) lookShort(p probes.Probe) health.Result {
	return look(c.t, p, 300*time.Millisecond)
}

func TestRealContainerd(t *testing.T) {
	c := startContainerd(t)
	runs := containerRuntime(c.host, nil)
	network := build[runtime.RuntimeNetworkOptions](c.host, runtime.RuntimeNetwork, nil)
	got := c.awaitReason(runs, health.ReasonOK)
	if !strings.HasPrefix(got.Message, "containerd ") || !strings.HasSuffix(got.Message, " is ready") {
		t.Errorf("%+v", got)
	}
	expect(t, look(t, network, patience), health.Fatal, runtime.RuntimeNetworkNotReady, "NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized")

	c.write("/etc/cni/net.d/10-test.conflist", cniConfiguration)
	c.awaitReason(network, health.ReasonOK)

	c.running.Signal(syscall.SIGSTOP)
	for c.lookShort(runs).Reason != runtime.RuntimeUnreachable { // its threads stop one by one
	}
	expect(t, c.lookShort(runs), health.Fatal, runtime.RuntimeUnreachable, "what listens on "+containerdSocket+" does not answer within the check's timeout")
	c.running.Signal(syscall.SIGCONT)
	c.awaitReason(runs, health.ReasonOK)

	c.running.Kill()
	expect(t, look(t, runs, patience), health.Fatal, runtime.RuntimeUnreachable, "no connection to "+containerdSocket+": connection refused")
	c.start()
	c.awaitReason(runs, health.ReasonOK)
	c.awaitReason(network, health.ReasonOK)

	c.running.Stop(time.Minute)
	if got := look(t, runs, patience); got.Reason != runtime.RuntimeUnreachable {
		t.Errorf("after a clean end: %+v", got)
	}
}

// The plugin that speaks CRI can be missing from a containerd that runs: disabled, or it failed to load.
func TestRealContainerdWithoutItsCRIPlugin(t *testing.T) {
	c := startContainerd(t)
	c.awaitReason(containerRuntime(c.host, nil), health.ReasonOK)
	c.running.Kill()
	c.write("/etc/containerd/config.toml", strings.Replace(read(t, c.path("/etc/containerd/config.toml")), "version = 2\n", "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n", 1))
	c.start()
	p := containerRuntime(c.host, nil)
	c.awaitReason(p, health.ReasonNotApplicable)
	c.write("/var/lib/kubelet/config.yaml", "")
	expect(t, look(t, p, patience), health.Fatal, runtime.RuntimeWithoutCRI, "what listens on "+containerdSocket+" does not speak CRI v1")
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
