package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
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
	all := []Finding{hostRoot(host), hostProcesses(host), stateFolder(o.Config.StateDir)}
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

func hostSystemd(ctx context.Context, o Options, host *hostfs.Root) []Finding {
	if !hasSystemd(host) {
		return []Finding{{Need: "systemd over D-Bus", OK: true, Detail: "this machine does not run systemd, so it is not needed"}}
	}
	bus := systemd.NewBus(busSocket(host, o.Getenv))
	defer bus.Close()
	reachable := Finding{Need: "systemd over D-Bus", Required: true}
	unit := Finding{Need: "transient unit", Required: true, Detail: "not tried: systemd cannot be reached"}
	if err := reach(ctx, bus, preflightLimit); err != nil {
		reachable.Detail = err.Error() + "; in a pod, mount the machine's /run/dbus"
		return []Finding{reachable, unit}
	}
	reachable.OK, reachable.Detail = true, "answers on "+busSocket(host, o.Getenv)

	ctx, cancel := context.WithTimeout(ctx, preflightLimit)
	defer cancel()
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

func apiServer(ctx context.Context, o Options, host *hostfs.Root) []Finding {
	reachable := Finding{Need: "API server", Required: true}
	connector := kubeclient.Connector{
		Source: sourceOf(o, host), NodeName: o.NodeName, UserAgent: "fettle-nodeagent/" + o.Version + " (preflight)",
		Log: slog.New(slog.DiscardHandler),
	}
	found, err := connector.Try(ctx)
	if errors.Is(err, kubeclient.ErrStandalone) {
		return []Finding{{Need: "API server", OK: true, Detail: err.Error()}}
	}
	if err != nil {
		reachable.Detail = err.Error()
		return []Finding{reachable}
	}
	reachable.OK, reachable.Detail = true, found.Config.Host+" by "+found.Origin
	client, err := kubeclient.New(found.Config, kubeclient.Settings{
		UserAgent: connector.UserAgent, CallTimeout: preflightLimit, CallsPerSecond: 10, Burst: 10,
	})
	if err != nil {
		reachable.OK, reachable.Detail = false, err.Error()
		return []Finding{reachable}
	}
	return append([]Finding{reachable}, rights(ctx, client, o.NodeName)...)
}

// rights tries what the agent's identity may do. An answer that the object is there already, or not yet, comes after the
// API server has let the request through.
func rights(ctx context.Context, client *kubeclient.Client, name string) []Finding {
	node, nodeErr := client.Node(ctx, name)
	body, bodyErr := report.NodeStatus(name, node.UID, nil)
	_, hostErr := client.ListHost(ctx, name)
	holder := "preflight"
	_, leaseErr := client.CreateLease(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: fettlev1alpha1.LeaseNamespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}, kubeclient.ApplyOptions{DryRun: true})
	if apierrors.IsAlreadyExists(leaseErr) {
		leaseErr = nil
	}
	all := []Finding{
		right("read the node", nodeErr, "node "+name+" is registered"),
		right("write the lease", leaseErr, fettlev1alpha1.LeaseNamespace+"/"+name+" (dry run)"),
		right("read the host object", hostErr, "allowed"),
	}
	if apierrors.IsNotFound(nodeErr) {
		all[0].OK, all[0].Required = true, false
		all[0].Detail = "node " + name + " is not registered yet; is its name right? See --node-name"
		return append(all, Finding{Need: "write the node's conditions", OK: true, Detail: "not tried: the node is not registered yet"})
	}
	err := errors.Join(nodeErr, bodyErr)
	if err == nil {
		err = client.ApplyNodeStatus(ctx, name, body, kubeclient.ApplyOptions{DryRun: true})
	}
	return append(all, right("write the node's conditions", err, "allowed (dry run)"))
}

func right(need string, err error, well string) Finding {
	f := Finding{Need: need, Required: true, OK: err == nil, Detail: well}
	if err != nil {
		f.Detail = err.Error()
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			f.Detail += "; apply Fettle's manifests, which hold the namespaces and rights"
		}
	}
	return f
}
