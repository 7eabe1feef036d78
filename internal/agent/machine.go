package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/prober"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
)

// readBootID reads it from the machine's /proc, or, where a container sees that as an empty folder, from its own.
func readBootID(host *hostfs.Root) (string, error) {
	content, err := host.ReadFile(bootIDPath)
	if err != nil {
		content, err = os.ReadFile(bootIDPath)
	}
	if err != nil {
		return "", fmt.Errorf("read the machine's boot ID: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// sourceOf says where the API server is looked for.
func sourceOf(o Options, host *hostfs.Root) kubeclient.Source {
	return kubeclient.Source{
		Kubeconfig:         o.Config.Kubeconfig,
		ServiceAccountDir:  kubeclient.ServiceAccountDir,
		ServiceHost:        o.Getenv("KUBERNETES_SERVICE_HOST"),
		ServicePort:        o.Getenv("KUBERNETES_SERVICE_PORT"),
		ReadHostFile:       host.ReadFile,
		KubeletKubeconfigs: kubeclient.KubeletKubeconfigs,
	}
}

// busSocket is the path of the machine's system bus in this process's file system.
func busSocket(host *hostfs.Root, getenv func(string) string) string {
	if path, ok := strings.CutPrefix(getenv("DBUS_SYSTEM_BUS_ADDRESS"), "unix:path="); ok {
		return path
	}
	return host.Path(systemd.SocketPath)
}

// hasSystemd reports whether the machine's init is systemd.
func hasSystemd(host *hostfs.Root) bool {
	_, err := host.Stat(systemd.RunningPath)
	return !errors.Is(err, fs.ErrNotExist)
}

// unreachableLooks is the number of looks in a row, a second apart, that it takes to believe that neither answers: they do
// not while they are started anew, as they are when they are upgraded.
const unreachableLooks = 3

// Surroundings give what probes look through, but for what an agent knows of itself. end gives up what it holds.
func Surroundings(host *hostfs.Root, getenv func(string) string, log *slog.Logger) (env probes.Env, end func()) {
	files := prober.New(log)
	env = probes.Env{Host: host, Getenv: getenv, Files: files, Sockets: unixgrpc.New()}
	if hasSystemd(host) {
		env.Systemd = systemd.NewBus(busSocket(host, getenv))
	}
	return env, func() {
		files.Close()
		env.Sockets.Close()
		if env.Systemd != nil {
			env.Systemd.Close()
		}
	}
}

// runtimeWatch tells whether the agent reaches what it works with: the container runtime where one is configured or found,
// else systemd.
type runtimeWatch struct {
	o    Options
	env  probes.Env
	tell func(report.Runtime)

	mu       sync.Mutex
	endpoint string // of the container runtime, as configured
	cri      *runtime.CRI
}

func newRuntimeWatch(o Options, env probes.Env, tell func(report.Runtime)) *runtimeWatch {
	w := &runtimeWatch{o: o, env: env, tell: tell}
	w.ask(runtimeEndpoint(o.Config))
	return w
}

func (w *runtimeWatch) ask(endpoint string) {
	w.endpoint, w.cri = endpoint, runtime.NewCRI(w.env.Host, w.env.Sockets, endpoint)
}

// configure takes in another endpoint of the container runtime.
func (w *runtimeWatch) configure(c config.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if endpoint := runtimeEndpoint(c); endpoint != w.endpoint {
		w.ask(endpoint)
	}
}

// runtimeEndpoint is what the check of the container runtime is told.
func runtimeEndpoint(c config.Config) string {
	for _, check := range c.Checks {
		if options, ok := check.Options.(*runtime.ContainerRuntimeOptions); ok {
			return options.Endpoint
		}
	}
	return ""
}

// run tells it once in each heartbeat interval, and whenever it changes. It takes no part in the heartbeat: a runtime that
// hangs makes nobody look dead.
func (w *runtimeWatch) run(ctx context.Context) {
	var said report.Runtime
	var wording health.Wording
	for failures := 0; ; {
		now := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		now.Detail = wording.Choose(now.Detail, time.Now())
		wait := w.o.Config.Heartbeat.Interval
		if now.Reachable {
			failures = 0
		} else {
			failures++
		}
		switch {
		case failures > 0 && failures < unreachableLooks:
			wait = min(time.Second, wait)
		case now != said:
			if now.Reachable != said.Reachable && said != (report.Runtime{}) || !now.Reachable {
				w.o.Log.Warn("runtime changed", "reachable", now.Reachable, "detail", now.Detail)
			}
			said = now
			w.tell(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (w *runtimeWatch) look(ctx context.Context) report.Runtime {
	ctx, cancel := context.WithTimeout(ctx, w.o.Config.Heartbeat.StatusTimeout)
	defer cancel()
	w.mu.Lock()
	cri := w.cri
	w.mu.Unlock()
	err := cri.Reachable(ctx)
	switch {
	case err == nil:
		return report.Runtime{Reachable: true, Detail: "the container runtime answers"}
	case !errors.Is(err, runtime.ErrNoRuntime):
		return report.Runtime{Detail: "the container runtime does not answer: " + err.Error()}
	case w.env.Systemd == nil:
		return report.Runtime{Reachable: true, Detail: "this machine has neither a container runtime nor systemd"}
	}
	if err := w.env.Systemd.Reachable(ctx); err != nil {
		return report.Runtime{Detail: "systemd does not answer: " + err.Error()}
	}
	return report.Runtime{Reachable: true, Detail: "systemd answers"}
}
