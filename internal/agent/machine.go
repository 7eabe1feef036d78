package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/internal/systemd"
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

// unreachableLooks is the number of looks in a row, a second apart, that it takes to believe that systemd does not
// answer: it does not while it executes itself anew, as it does when it is upgraded.
const unreachableLooks = 3

// watchRuntime tells whether the agent reaches what it works with, once in each heartbeat interval, and whenever that
// changes. It takes no part in the heartbeat: a systemd that hangs makes nobody look dead.
func watchRuntime(ctx context.Context, host *hostfs.Root, o Options, tell func(report.Runtime)) {
	if !hasSystemd(host) {
		tell(report.Runtime{Reachable: true, Detail: "this machine has no systemd"})
		return
	}
	bus := systemd.NewBus(busSocket(host, o.Getenv))
	defer bus.Close()
	var said report.Runtime
	for failures := 0; ; {
		err := reach(ctx, bus, o.Config.Heartbeat.StatusTimeout)
		if ctx.Err() != nil {
			return
		}
		now := report.Runtime{Reachable: true, Detail: "systemd answers"}
		wait := o.Config.Heartbeat.Interval
		if err != nil {
			now = report.Runtime{Detail: "systemd does not answer: " + err.Error()}
			failures++
		} else {
			failures = 0
		}
		switch {
		case failures > 0 && failures < unreachableLooks:
			wait = min(time.Second, wait)
		case now != said:
			if now.Reachable != said.Reachable && said != (report.Runtime{}) || !now.Reachable {
				o.Log.Warn("runtime changed", "reachable", now.Reachable, "detail", now.Detail)
			}
			said = now
			tell(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func reach(ctx context.Context, bus *systemd.Bus, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return bus.Reachable(ctx)
}
