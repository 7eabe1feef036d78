package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/reasons"
	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
)

// Probe looks at one thing once.
//
// Run returns before ctx ends, or soon after: what ctx ends for is up to the probe to judge (a connection that was not
// answered in time is a verdict). It is never called again before it returned.
type Probe interface {
	Run(ctx context.Context) health.Result
}

// Func is a Probe without state.
type Func func(ctx context.Context) health.Result

// Run looks once.
func (f Func) Run(ctx context.Context) health.Result { return f(ctx) }

// Watcher is a Probe that notices by itself that something changed, over a netlink or D-Bus subscription, say.
type Watcher interface {
	Probe
	// Watch calls look whenever a look is worth it before it is due, and returns when ctx ends. The scheduler calls it
	// once, in a goroutine of its own, and bounds how often look leads to one. A subscription that cannot be had or is
	// lost is tried again by Watch, with waits; regular looks go on meanwhile.
	Watch(ctx context.Context, look func())
}

// Files makes the file calls that can hang, where a hang does not harm the agent: in a child process. Its methods return
// before ctx ends. All paths are of the agent's own file system (hostfs.Root.Path).
type Files interface {
	// Statfs is statfs(2).
	Statfs(ctx context.Context, path string) (unix.Statfs_t, error)
	// WriteCheck makes a file with a name that starts with a dot in a folder, writes it, syncs it, reads it back and
	// removes it.
	WriteCheck(ctx context.Context, folder string) error
}

// ErrHung is what Files returns for a call that did not return, and for further calls on the same path until it does.
var ErrHung = errors.New("the call does not return")

// Env is what a probe may look through.
type Env struct {
	// Host is the machine's file system.
	Host *hostfs.Root
	// Getenv reads the agent's environment.
	Getenv func(name string) string
	// Files makes file calls that can hang.
	Files Files
	// Sockets are the connections to what speaks gRPC on the machine.
	Sockets *unixgrpc.Connections
	// Systemd is the machine's systemd; nil where there is none.
	Systemd *systemd.Bus
	// Agent is what the agent knows of itself.
	Agent Agent
}

// Agent is what checks of the agent itself are told. Its functions do not block, but for those that watch; nil ones say
// that all is well.
type Agent struct {
	// ConfigFault is what is wrong with the newest configuration, nil when it is in force.
	ConfigFault func() error
	// WatchConfig calls look whenever what ConfigFault says may be another, and returns when ctx ends.
	WatchConfig func(ctx context.Context, look func())
	// Heartbeat says how the Lease stands.
	Heartbeat func() Heartbeat
	// WatchHeartbeat calls look whenever what Heartbeat says may be another, and returns when ctx ends.
	WatchHeartbeat func(ctx context.Context, look func())
}

// Heartbeat is how the Lease stands, for the check of the agent itself.
type Heartbeat struct {
	// Joined is false without a cluster.
	Joined bool
	// Conflict : another living agent holds the Lease.
	Conflict bool
	// Impaired : the Lease could not be renewed for two intervals or longer.
	Impaired bool
	// Detail says why, without changing numbers.
	Detail string
}

// Kind declares a kind of check.
type Kind struct {
	// Name is what the configuration calls it, e.g. "cni-config".
	Name string
	// Condition is the type of the Node condition it feeds.
	Condition string
	// Description is one sentence: what is looked at, where.
	Description string
	// Reasons the probe can give beside those of Common.
	Reasons reasons.Table
	// Interval from one look to the next, Timeout of one look; both may be configured.
	Interval, Timeout time.Duration
	Thresholds        health.Thresholds
	// Template : there is no such check by itself. Each entry of the configuration that names this kind makes one, with a
	// name of its own, e.g. an "exec" named "raid-state".
	Template bool
	// DependsOn names checks without which this one says nothing; see health.Check.
	DependsOn []string
	// Clearing is what makes a fatal check well again; empty: good looks.
	Clearing health.Clearing

	options func() any
	build   func(env Env, options any) Probe
}

// Define ties a kind to its options and to the function that makes its probe. Options is a struct with the tags of
// package config/strict; defaults is its value where nothing is configured.
func Define[Options any](kind Kind, defaults func() Options, build func(Env, Options) Probe) Kind {
	kind.options = func() any { o := defaults(); return &o }
	kind.build = func(env Env, options any) Probe { return build(env, *options.(*Options)) }
	return kind
}

// NewOptions returns a pointer to the kind's options struct, filled with the defaults.
func (k Kind) NewOptions() any { return k.options() }

// ReasonsOfOptions is an options struct that adds to its kind's reasons, such as one that the user named.
type ReasonsOfOptions interface{ OwnReasons() reasons.Table }

// Build makes a probe from options that came from NewOptions. Whatever the probe answers is held against the kind's
// table of reasons. It is a Watcher if the kind's probe is one.
func (k Kind) Build(env Env, options any) Probe {
	if own, ok := options.(ReasonsOfOptions); ok {
		k.Reasons = slices.Concat(k.Reasons, own.OwnReasons())
	}
	d := declared{kind: k, probe: k.build(env, options)}
	if w, ok := d.probe.(Watcher); ok {
		return watching{declared: d, watcher: w}
	}
	return d
}

// watching is a declared probe that is a Watcher.
type watching struct {
	declared
	watcher Watcher
}

func (w watching) Watch(ctx context.Context, look func()) { w.watcher.Watch(ctx, look) }

// declared lets only those reasons through that the kind declares, with the verdict that their severity means.
type declared struct {
	kind  Kind
	probe Probe
}

func (d declared) Run(ctx context.Context) health.Result {
	r := d.probe.Run(ctx)
	if err := d.kind.Declares(r); err != nil {
		return health.Result{Verdict: health.Unknown, Reason: ReasonUndeclared, Message: err.Error()}
	}
	return r
}

// Declares reports an error unless the result's reason is in the kind's table, or in Common, with this verdict.
func (k Kind) Declares(r health.Result) error {
	switch r.Verdict {
	case health.OK, health.NotApplicable:
		if r.Reason != map[health.Verdict]string{health.OK: health.ReasonOK, health.NotApplicable: health.ReasonNotApplicable}[r.Verdict] {
			return fmt.Errorf("check %s gave the verdict %s with the reason %q", k.Name, r.Verdict, r.Reason)
		}
		return nil
	}
	table := k.Reasons
	if Common.Has(r.Reason) {
		table = Common
	}
	if !table.Has(r.Reason) {
		return fmt.Errorf("check %s gave the reason %q, which its table does not declare", k.Name, r.Reason)
	}
	if want := verdictOf(table.Find(r.Reason).Severity); want != r.Verdict {
		return fmt.Errorf("check %s gave the reason %q with the verdict %s, its table says %s", k.Name, r.Reason, r.Verdict, want)
	}
	return nil
}
