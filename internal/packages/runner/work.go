package runner

import (
	"time"

	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/image"
	"github.com/fettle-dev/fettle/internal/packages/stages"
)

// Work is what one NodeWright wants of this host.
type Work struct {
	NodeWright string
	UID        string
	Generation int64
	// Admission is the ID of what allows the host to be interrupted.
	Admission string
	// Order is the host's place in the rollout.
	Order int
	Plan  stages.Plan
	// Packages has for every package of the plan how it is run, by name.
	Packages map[string]Package
	// Metadata has the files of the node-metadata folder.
	Metadata map[string][]byte
}

// Package is how a package is run.
type Package struct {
	Image image.Reference
	// File, an OCI layout or an archive on the host, takes the place of the registry.
	File string
	Env  map[string]string
	// ConfigMap has the contents of the files of the configmaps folder.
	ConfigMap map[string]string
	Resources Resources
	// StageTimeout bounds one attempt at a stage; zero is no bound.
	StageTimeout time.Duration
	// GracefulShutdown is how long a step that is stopped may take.
	GracefulShutdown time.Duration
	// Inhibit keeps the host from shutting down while a step runs.
	Inhibit bool
}

// Resources bound a step. Zero values are no bounds.
type Resources struct {
	// CPURequest and CPULimit are in thousandths of a CPU.
	CPURequest, CPULimit int64
	// MemoryRequest and MemoryLimit are in bytes.
	MemoryRequest, MemoryLimit int64
}

func (w Work) resource(task stages.Task) format.Resource {
	return format.Resource{NodeWright: w.NodeWright, UID: w.UID, Generation: w.Generation, Package: task.Name, Version: task.Version}
}

// modes are those that a stage runs, in order.
func modes(stage stages.Stage) []format.Mode {
	mode := format.Mode(stage) // stages of packages have the names of modes
	return []format.Mode{mode, mode.Check()}
}
