package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/sealing"
	"github.com/fettle-dev/fettle/internal/statefile"
)

// Options of an agent.
type Options struct {
	Config config.Config
	// Configuration keeps Config current; nil: it stays as it is.
	Configuration *reload.Watcher
	// Hangup asks for the configuration to be read again.
	Hangup <-chan os.Signal
	// NodeName is the name of the machine's Node.
	NodeName string
	// Version of the binary.
	Version string
	// Getenv reads the environment.
	Getenv func(string) string
	Log    *slog.Logger
	// LogLevel sets the level of Log; nil: it stays as it is.
	LogLevel *slog.LevelVar
}

// Run runs the agent until the context ends, which is no error. What it said of the machine stays as it is.
func Run(ctx context.Context, o Options) error {
	host, err := hostfs.Open(o.Config.HostRoot)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // only read from
	stateDir := o.Config.StateDir
	release, err := claimStateDir(stateDir, o.Log)
	if err != nil {
		return err
	}
	defer release()
	self, err := identify(o, host)
	if err != nil {
		return err
	}
	self.PublicKey = publicKey(stateDir, o.Log)
	p := assemble(o, host, stateDir, self)
	defer p.close()
	o.Log.Info("agent starts", "version", o.Version, "node", o.NodeName, "id", self.ID, "mode", self.Mode)
	err = p.run(ctx)
	o.Log.Info("agent ends; what it said of the machine stays")
	return err
}

// publicKey is that of the agent's key pair, which is made at the first start. An agent without one works, and takes no
// sealed values.
func publicKey(stateDir string, log *slog.Logger) string {
	key, err := sealing.LoadOrCreate(stateDir)
	if err != nil {
		log.Warn("no values can be sealed to this agent", "error", err)
		return ""
	}
	return key.PublicKey()
}

// claimStateDir makes the state folder ours; only another process that uses it is an error. An agent works without one,
// and with one that takes nothing new: what it holds, a latched fault above all, must not be forgotten.
func claimStateDir(dir string, log *slog.Logger) (release func(), err error) {
	lock, err := statefile.Lock(dir)
	if errors.Is(err, statefile.ErrInUse) {
		return nil, fmt.Errorf("%w; is another agent running on this machine, as a service or in a pod?", err)
	}
	if err == nil {
		err = statefile.Writable(dir)
	}
	if err != nil {
		log.Warn("nothing new is kept over restarts; give the agent a folder it may write to", "stateDir", dir, "error", err)
	}
	return func() { _ = lock.Close() }, nil // of no lock as well
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
