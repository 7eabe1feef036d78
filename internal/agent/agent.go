package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/statefile"
)

// Options of an agent.
type Options struct {
	Config config.Config
	// NodeName is the name of the machine's Node.
	NodeName string
	// Version of the binary.
	Version string
	// Getenv reads the environment.
	Getenv func(string) string
	Log    *slog.Logger
}

// Run runs the agent until the context ends, which is no error. What it said of the machine stays as it is.
func Run(ctx context.Context, o Options) error {
	host, err := hostfs.Open(o.Config.HostRoot)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // only read from
	stateDir, release, err := claimStateDir(o.Config.StateDir, o.Log)
	if err != nil {
		return err
	}
	defer release()

	self, err := identify(o, host)
	if err != nil {
		return err
	}
	looks, checks := catalogue.Build(o.Config.Checks, probes.Env{Host: host, Getenv: o.Getenv})
	var d *diagnosis
	progress := func() uint64 { return d.scheduler.Progress() }
	joined := newCluster(clusterOptions{
		node: o.NodeName, self: self, source: sourceOf(o, host), stateDir: stateDir,
		heartbeat: o.Config.Heartbeat, progress: progress, awake: func() bool { return d.scheduler.Awake() }, log: o.Log,
	})
	notices := newNotifier(progress, joined.status)
	kept, remembered := openMemory(stateDir, o.Log)
	d = newDiagnosis(diagnosisParts{
		looks: looks, checks: checks, seed: o.NodeName, remembered: remembered, bootID: self.BootID, log: o.Log,
		tell: func(r health.Report) {
			joined.say(r)
			notices.say(r)
		},
		remember: kept.note,
	})
	d.begin()

	o.Log.Info("agent starts", "version", o.Version, "node", o.NodeName, "checks", len(looks), "id", self.ID, "mode", self.Mode)
	var parts sync.WaitGroup
	parts.Go(func() { err = d.scheduler.Run(ctx) })
	parts.Go(func() { kept.run(ctx) })
	parts.Go(func() { joined.run(ctx) })
	parts.Go(func() { notices.run(ctx) })
	parts.Go(func() { watchRuntime(ctx, host, o, joined.setRuntime) })
	parts.Wait()
	d.end()
	kept.end()
	o.Log.Info("agent ends; what it said of the machine stays")
	return err
}

// claimStateDir makes the state folder ours. An agent works without one, so only another process that uses it is an
// error; an empty name is returned when there is none to be had.
func claimStateDir(dir string, log *slog.Logger) (name string, release func(), err error) {
	without := func(err error) (string, func(), error) {
		log.Warn("no state is kept over restarts; give the agent a folder it may write to", "stateDir", dir, "error", err)
		return "", func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return without(err)
	}
	lock, err := statefile.Lock(dir)
	if errors.Is(err, statefile.ErrInUse) {
		return "", nil, fmt.Errorf("%w; is another agent running on this machine, as a service or in a pod?", err)
	}
	if err != nil {
		return without(err)
	}
	return dir, func() { _ = lock.Close() }, nil
}

// Modes in which an agent runs.
const (
	modeDaemonSet = "DaemonSet"
	modeService   = "Service"
)

// bootIDPath is where Linux says which boot this is. It is the same in every container of a machine.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

func identify(o Options, host *hostfs.Root) (fettlev1alpha1.HostAgent, error) {
	bootID, err := readBootID(host)
	if err != nil {
		return fettlev1alpha1.HostAgent{}, err
	}
	mode := modeService
	if o.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		mode = modeDaemonSet
	}
	return fettlev1alpha1.HostAgent{
		Version:   o.Version,
		ID:        o.NodeName + "_" + uuid.NewString(),
		Mode:      mode,
		BootID:    bootID,
		StartedAt: metav1.Now(),
	}, nil
}
