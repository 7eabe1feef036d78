package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/sealing"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/internal/systemd"
)

// Finding is whether one thing that the agent needs is there.
type Finding struct {
	// Need names the thing.
	Need string
	// Required : the agent cannot do its work without it. What is not required makes it do less.
	Required bool
	OK       bool
	// Detail says what was seen, and what to do when it is not well.
	Detail string
}

// preflightLimit bounds each question to the machine or the API server.
const preflightLimit = 10 * time.Second

// Preflight tries what the agent needs on this machine. It changes nothing but that it writes and removes a file in the
// state folder and runs /bin/true on the machine; what it asks of the API server is a dry run.
func Preflight(ctx context.Context, o Options) []Finding {
	host, err := hostfs.Open(o.Config.HostRoot)
	if err != nil {
		return []Finding{{Need: "host root", Required: true, Detail: err.Error() + "; mount the machine's root file system and name it with --host-root"}}
	}
	defer func() { _ = host.Close() }() // only read from
	all := []Finding{hostRoot(host), hostProcesses(host), stateFolder(o.Config.StateDir), sealingKey(o.Config.StateDir)}
	all = append(all, hostSystemd(ctx, o, host)...)
	return append(all, apiServer(ctx, o, host)...)
}

func hostRoot(host *hostfs.Root) Finding {
	f := Finding{Need: "host root", Required: true}
	content, err := host.ReadFile("/etc/os-release")
	if err != nil {
		f.Detail = fmt.Sprintf("%v; is %s the machine's root file system?", err, host.Path("/"))
		return f
	}
	f.OK, f.Detail = true, host.Path("/")
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			f.Detail = strings.Trim(name, `"`) + " at " + host.Path("/")
		}
	}
	return f
}

func hostProcesses(host *hostfs.Root) Finding {
	f := Finding{Need: "processes of the machine"}
	content, err := host.ReadFile("/proc/1/comm")
	if err != nil {
		f.Detail = fmt.Sprintf("%v; mount the machine's root with what is mounted below it", err)
		return f
	}
	f.OK, f.Detail = true, "process 1 is "+strings.TrimSpace(string(content))
	return f
}

func stateFolder(dir string) Finding {
	f := Finding{Need: "state folder"} // without one the agent works, and forgets over restarts
	path := filepath.Join(dir, "preflight-"+uuid.NewString()+".json")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = statefile.Write(path, 1, "written by preflight")
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		f.Detail = err.Error() + "; give the agent a folder on disk that it may write to, with --state-dir"
		return f
	}
	f.OK, f.Detail = true, dir+" takes a durable write"
	return f
}

// sealingKey makes none: that is for the agent that holds the state folder.
func sealingKey(dir string) Finding {
	f := Finding{Need: "key for sealed values"} // what is not sealed works without
	key, err := sealing.Load(dir)
	switch {
	case statefile.Missing(err):
		f.OK, f.Detail = true, "none yet; the agent makes one when it first starts"
	case err != nil:
		f.Detail = err.Error()
	default:
		f.OK, f.Detail = true, "the public key is "+key.PublicKey()
	}
	return f
}

func hostSystemd(ctx context.Context, o Options, host *hostfs.Root) []Finding {
	if !hasSystemd(host) {
		return []Finding{{Need: "systemd over D-Bus", OK: true, Detail: "this machine does not run systemd, so it is not needed"}}
	}
	bus := systemd.NewBus(busSocket(host, o.Getenv))
	defer bus.Close()
	reachable := Finding{Need: "systemd over D-Bus", Required: true}
	unit := Finding{Need: "transient unit", Required: true, Detail: "not tried: systemd cannot be reached"}
	ctx, cancel := context.WithTimeout(ctx, preflightLimit)
	defer cancel()
	if err := bus.Reachable(ctx); err != nil {
		reachable.Detail = err.Error() + "; in a pod, mount the machine's /run/dbus"
		return []Finding{reachable, unit}
	}
	reachable.OK, reachable.Detail = true, "answers on "+busSocket(host, o.Getenv)

	result, err := bus.RunTransient(ctx, "fettle-preflight-"+uuid.NewString()+".service", "/bin/true")
	switch {
	case err != nil:
		unit.Detail = err.Error()
	case !result.Succeeded:
		unit.Detail = fmt.Sprintf("/bin/true ended with %s, status %d", result.Reason, result.ExitCode)
	default:
		unit.OK, unit.Detail = true, "/bin/true was run on the machine"
	}
	return []Finding{reachable, unit}
}
