package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	gort "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
)

const containerdSocket = "/run/containerd/containerd.sock"

func containerRuntime(h host, set func(*runtime.ContainerRuntimeOptions)) probes.Probe {
	return build(h, runtime.ContainerRuntime, set)
}

func at(socket string) func(*runtime.ContainerRuntimeOptions) {
	return func(o *runtime.ContainerRuntimeOptions) { o.Endpoint = "unix://" + socket }
}

func TestWhatRuntimesAnswer(t *testing.T) {
	for _, tc := range []struct {
		runtime        string
		ready, network health.Result
	}{
		{
			runtime: "containerd-1.7-ready",
			ready:   probes.OK("containerd v1.7.27 is ready"),
			network: probes.OK("the container runtime's network is ready"),
		},
		{
			runtime: "containerd-1.7-without-cni",
			ready:   probes.OK("containerd v1.7.27 is ready"),
			network: health.Result{Verdict: health.Fatal, Reason: runtime.RuntimeNetworkNotReady, Message: "NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized"},
		},
		{
			runtime: "containerd-2.0-deprecations",
			ready:   probes.OK("containerd v2.0.5 is ready"),
			network: probes.OK("the container runtime's network is ready"),
		},
		{
			runtime: "crio-1.33-without-cni",
			ready:   probes.OK("cri-o 1.33.4 is ready"),
			network: health.Result{Verdict: health.Fatal, Reason: runtime.RuntimeNetworkNotReady, Message: "NetworkPluginNotReady: Network plugin returns error: No CNI configuration file in /etc/cni/net.d/. Has your network provider started?"},
		},
		{
			runtime: "cri-dockerd-0.3-without-docker",
			ready:   health.Result{Verdict: health.Fatal, Reason: runtime.RuntimeNotReady, Message: "docker: DockerDaemonNotReady: docker: failed to get docker version: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"},
			network: probes.OK("the container runtime's network is ready"),
		},
	} {
		t.Run(tc.runtime, func(t *testing.T) {
			h := newHost(t)
			h.serve(containerdSocket, fixture(t, tc.runtime))
			if got := look(t, containerRuntime(h, nil), patience); got != tc.ready {
				t.Errorf("got  %+v\nwant %+v", got, tc.ready)
			}
			network := build[runtime.RuntimeNetworkOptions](h, runtime.RuntimeNetwork, nil)
			if got := look(t, network, patience); got != tc.network {
				t.Errorf("got  %+v\nwant %+v", got, tc.network)
			}
		})
	}
}

func TestRuntimeThatLeavesItsConditionsOut(t *testing.T) {
	h := newHost(t)
	silent := fixture(t, "containerd-1.7-ready")
	silent.status.Status = nil
	h.serve(containerdSocket, silent)
	expect(t, look(t, containerRuntime(h, nil), patience), health.Fatal, runtime.RuntimeNotReady, "containerd: it does not tell")
	network := build[runtime.RuntimeNetworkOptions](h, runtime.RuntimeNetwork, nil)
	expect(t, look(t, network, patience), health.Fatal, runtime.RuntimeNetworkNotReady, "it does not tell")
}

func TestRuntimeThatAnswersWithAnError(t *testing.T) {
	h := newHost(t)
	starting := fixture(t, "containerd-1.7-ready")
	starting.err = status.Error(codes.Unknown, "server is not initialized yet")
	h.serve(containerdSocket, starting)
	p := containerRuntime(h, nil)
	for range 2 {
		expect(t, look(t, p, patience), health.Fatal, runtime.RuntimeFailing, containerdSocket+" answers Unknown: server is not initialized yet")
	}
	starting.err = nil
	expect(t, look(t, p, patience), health.OK, health.ReasonOK, "containerd v1.7.27 is ready")
}

func TestRuntimeThatDoesNotAnswer(t *testing.T) {
	const socket = "/run/x.sock"
	const timedOut = "what listens on /run/x.sock does not answer within the check's timeout"
	for _, tc := range []struct {
		name    string
		prepare func(h host)
		want    string
	}{
		{"its socket is not there", func(host) {}, "/run/x.sock does not exist"},
		{"its socket was left behind", func(h host) {
			l := h.listen(socket).(*net.UnixListener)
			l.SetUnlinkOnClose(false)
			l.Close()
		}, "no connection to /run/x.sock: connection refused"},
		{"a file lies in its place", func(h host) { h.write(socket, "") }, "no connection to /run/x.sock: connection refused"},
		{"nobody accepts, as when it is stopped", func(h host) { h.listen(socket) }, timedOut},
		{"it accepts and says nothing", func(h host) { serveRaw(h, socket, func(net.Conn) { <-h.t.Context().Done() }) }, timedOut},
		{"it hangs in the call", func(h host) {
			hanging := fixture(h.t, "containerd-1.7-ready")
			hanging.hangs = make(chan struct{})
			h.serve(socket, hanging)
		}, timedOut},
		{"it hangs up at once", func(h host) { serveRaw(h, socket, func(net.Conn) {}) }, "what listens on /run/x.sock does not hold a gRPC connection"},
		{"it speaks something else", func(h host) {
			serveRaw(h, socket, func(c net.Conn) { fmt.Fprintf(c, "SSH-2.0-OpenSSH_9.2\r\n") })
		}, "what listens on /run/x.sock does not hold a gRPC connection"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			tc.prepare(h)
			timeout := patience
			if tc.want == timedOut {
				timeout = 300 * time.Millisecond
			}
			p := containerRuntime(h, at(socket))
			expect(t, look(t, p, timeout), health.Fatal, runtime.RuntimeUnreachable, tc.want)
			network := build(h, runtime.RuntimeNetwork, func(o *runtime.RuntimeNetworkOptions) { o.Endpoint = "unix://" + socket })
			expect(t, look(t, network, timeout), health.Unknown, runtime.RuntimeNetworkNotAsked, tc.want)
			if err := reach(t, runtime.NewCRI(h.root, h.sockets, "unix://"+socket), timeout); err == nil || err.Error() != tc.want {
				t.Errorf("reachable: %v", err)
			}
		})
	}
}

func reach(t *testing.T, cri *runtime.CRI, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return cri.Reachable(ctx)
}

// serveRaw accepts connections, does with each what it is told, and closes it.
func serveRaw(h host, socket string, serve func(net.Conn)) {
	l := h.listen(socket)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

func TestLookCutShortSaysNothing(t *testing.T) {
	h := newHost(t)
	h.listen(containerdSocket)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect(t, containerRuntime(h, nil).Run(ctx), health.Unknown, runtime.RuntimeNotAsked, "the look at "+containerdSocket+" was cut short")
}

func TestReachable(t *testing.T) {
	h := newHost(t)
	if err := reach(t, runtime.NewCRI(h.root, h.sockets, ""), patience); !errors.Is(err, runtime.ErrNoRuntime) {
		t.Errorf("without a runtime: %v", err)
	}
	h.serve(containerdSocket, fixture(t, "cri-dockerd-0.3-without-docker"))
	if err := reach(t, runtime.NewCRI(h.root, h.sockets, ""), patience); err != nil {
		t.Errorf("a runtime that answers that it is not ready: %v", err)
	}
}

// A runtime that is restarted is asked again at the next look, without a wait.
func TestRuntimeThatIsRestarted(t *testing.T) {
	h := newHost(t)
	p := containerRuntime(h, nil)
	for range 3 {
		stop := h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, "containerd v1.7.27 is ready")
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, "containerd v1.7.27 is ready")
		stop()
		stop = h.serve(containerdSocket, fixture(t, "containerd-2.0-deprecations"))
		// The connection that broke may be noticed by the first call only.
		for got := look(t, p, patience); got.Verdict != health.OK; got = look(t, p, patience) {
			if t.Failed() || got.Reason != runtime.RuntimeUnreachable {
				t.Fatalf("%+v", got)
			}
		}
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, "containerd v2.0.5 is ready")
		stop()
		if got := look(t, p, patience); got.Reason == health.ReasonOK {
			t.Errorf("%+v", got)
		}
	}
}

// No look leaves anything running in the background, and a thousand take no more than one.
func TestLooksLeaveNothingBehind(t *testing.T) {
	h := newHost(t)
	stop := h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
	p := containerRuntime(h, nil)
	look(t, p, patience)
	kept := gort.NumGoroutine()
	for range 200 {
		look(t, p, patience)
	}
	awaitGoroutines(t, kept)
	stop()
	look(t, p, patience)
	look(t, p, patience)
	failed := gort.NumGoroutine()
	for range 200 {
		expect(t, look(t, p, patience), health.Fatal, runtime.RuntimeUnreachable, containerdSocket+" does not exist")
	}
	awaitGoroutines(t, failed)
}

// Checks are made anew at each change of the configuration, and nobody tells the old ones. The connection is not theirs.
func TestChecksThatAreMadeAnewLeaveNothingBehind(t *testing.T) {
	h := newHost(t)
	h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
	look(t, containerRuntime(h, nil), patience)
	before := gort.NumGoroutine()
	for range 50 {
		expect(t, look(t, containerRuntime(h, nil), patience), health.OK, health.ReasonOK, "containerd v1.7.27 is ready")
	}
	awaitGoroutines(t, before)
}

func awaitGoroutines(t *testing.T, most int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); gort.NumGoroutine() > most; time.Sleep(10 * time.Millisecond) {
		gort.GC() // what nobody holds any more is closed
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, at most %d were expected", gort.NumGoroutine(), most)
		}
	}
}

func TestWhereTheRuntimeIsFound(t *testing.T) {
	const other = "/run/other/runtime.sock"
	for _, tc := range []struct {
		name    string
		files   map[string]string
		serving string
		set     func(*runtime.ContainerRuntimeOptions)
		want    string // reason
	}{
		{name: "nothing at all", want: health.ReasonNotApplicable},
		{name: "nothing, but it is required", set: func(o *runtime.ContainerRuntimeOptions) { o.Required = true }, want: runtime.RuntimeUnreachable},
		{name: "nothing, but a kubelet has run", files: map[string]string{"/var/lib/kubelet/pki/kubelet.crt": ""}, want: runtime.RuntimeUnreachable},
		{name: "containerd", serving: containerdSocket, want: health.ReasonOK},
		{name: "CRI-O", serving: "/run/crio/crio.sock", want: health.ReasonOK},
		{name: "cri-dockerd", serving: "/run/cri-dockerd.sock", want: health.ReasonOK},
		{name: "k3s", serving: "/run/k3s/containerd/containerd.sock", want: health.ReasonOK},
		{name: "an unknown place that is configured", serving: other, set: at(other), want: health.ReasonOK},
		{
			name: "as the kubelet's configuration says", serving: other, want: health.ReasonOK,
			files: map[string]string{"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://" + other + "\n"},
		},
		{
			name: "as the kubelet's flags say, which win over its configuration", serving: other, want: health.ReasonOK,
			files: map[string]string{
				"/var/lib/kubelet/config.yaml":       "containerRuntimeEndpoint: unix:///run/gone.sock\n",
				"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.7 --container-runtime-endpoint=unix://" + other + " --pod-infra-container-image=pause\"\n",
			},
		},
		{
			name: "as the last of the kubelet's flags says", serving: other, want: health.ReasonOK,
			files: map[string]string{
				"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=--container-runtime-endpoint=unix:///run/gone.sock\n",
				"/etc/default/kubelet":               "# comment=--container-runtime-endpoint=unix:///run/no.sock\nKUBELET_EXTRA_ARGS='--container-runtime-endpoint " + other + "'\n",
			},
		},
		{
			name: "a kubelet that asks for one that is gone, beside one that is there", serving: containerdSocket, want: runtime.RuntimeUnreachable,
			files: map[string]string{"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix://" + other + "\n"},
		},
		{
			name: "a kubelet whose configuration does not parse", serving: containerdSocket, want: health.ReasonOK,
			files: map[string]string{"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: [\n"},
		},
		{
			name: "a kubelet that asks for no unix socket", serving: containerdSocket, want: runtime.RuntimeNotAsked,
			files: map[string]string{"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: npipe:////./pipe/containerd\n"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			for file, text := range tc.files {
				h.write(file, text)
			}
			if tc.serving != "" {
				h.serve(tc.serving, fixture(t, "containerd-1.7-ready"))
			}
			if got := look(t, containerRuntime(h, tc.set), patience); got.Reason != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

// Links are followed as the machine would, also absolute ones.
func TestSocketBehindLinks(t *testing.T) {
	h := newHost(t)
	h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
	if err := os.Symlink("/run", h.path("/var/run")); err != nil {
		t.Fatal(err)
	}
	got := look(t, containerRuntime(h, at("/var"+containerdSocket)), patience)
	expect(t, got, health.OK, health.ReasonOK, "containerd v1.7.27 is ready")
}

// containerd without its plugin "cri", as Docker installs it, is no runtime for a kubelet; nobody asks for one there.
func TestContainerdWithoutCRI(t *testing.T) {
	h := newHost(t)
	h.serve(containerdSocket, nil)
	expect(t, look(t, containerRuntime(h, nil), patience), health.NotApplicable, health.ReasonNotApplicable, "no container runtime is configured or found")
	network := build[runtime.RuntimeNetworkOptions](h, runtime.RuntimeNetwork, nil)
	expect(t, look(t, network, patience), health.NotApplicable, health.ReasonNotApplicable, "no container runtime is configured or found")
	h.write("/var/lib/kubelet/config.yaml", "")
	expect(t, look(t, containerRuntime(h, nil), patience), health.Fatal, runtime.RuntimeWithoutCRI, "what listens on "+containerdSocket+" does not speak CRI v1")
}

// asNobody is the environment variable by which this test runs itself as another user: the root that the machine has.
const asNobody = "TEST_LOOK_AS_NOBODY_AT"

func TestSocketThatMayNotBeOpened(t *testing.T) {
	if dir := os.Getenv(asNobody); dir != "" {
		root, err := hostfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := look(t, containerRuntime(host{t: t, dir: dir, root: root, sockets: unixgrpc.New()}, nil), patience)
		fmt.Printf("%s|%s|%s\n", got.Verdict, got.Reason, got.Message)
		return
	}
	h := newHost(t)
	h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
	if err := os.Chmod(h.path(containerdSocket), 0o660); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSocketThatMayNotBeOpened$")
	cmd.Env = append(os.Environ(), asNobody+"="+h.dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if want := "unknown|RuntimeNotAsked|connecting to " + containerdSocket + " failed on the agent's side: permission denied\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A machine that has no descriptor left says nothing of its runtime, nor of its kubelet.
func TestOutOfDescriptors(t *testing.T) {
	h := newHost(t)
	h.serve(containerdSocket, fixture(t, "containerd-1.7-ready"))
	p, kubelet := containerRuntime(h, nil), kubelet(h, "127.0.0.1:1")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	ofRuntime, ofKubelet := look(t, p, patience), look(t, kubelet, patience)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	expect(t, ofRuntime, health.Unknown, runtime.RuntimeNotAsked, "connecting to "+containerdSocket+" failed on the agent's side: too many open files")
	expect(t, ofKubelet, health.Unknown, runtime.KubeletNotAsked, "connecting to 127.0.0.1:1 failed on the agent's side: too many open files")
}
