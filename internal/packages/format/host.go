package format

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Default folders on a host.
const (
	DefaultRoot = "/var/lib/skyhook"
	DefaultLogs = "/var/log/skyhook"
)

// Folders are where one NodeWright keeps things on a host. All paths are those of the host.
type Folders struct {
	// Root and Logs are common to all NodeWrights, e.g. DefaultRoot and DefaultLogs.
	Root, Logs string
	// NodeWright is the name of the object.
	NodeWright string
}

// State is the folder of everything but logs.
func (f Folders) State() string { return path.Join(f.Root, f.NodeWright) }

// Copy is the folder that a package is copied to, shared by all of its stages.
func (f Folders) Copy(r Resource) string {
	return path.Join(f.State(), fmt.Sprintf("%s-%s-%s-%d", r.Package, r.Version, r.UID, r.Generation))
}

// Flags is the folder of flags.
func (f Folders) Flags() string { return path.Join(f.State(), "flags") }

// History is the folder of histories.
func (f Folders) History() string { return path.Join(f.State(), "history") }

// InterruptFlags is the folder of flags of the interrupts of one resource.
func (f Folders) InterruptFlags(r Resource) string {
	return path.Join(f.State(), "interrupts", "flags", r.ID())
}

// Log is the folder of all logs of the NodeWright.
func (f Folders) Log() string { return path.Join(f.Logs, f.NodeWright) }

// StepLog is the log file of one run of a step; its standard error alone is beside it, with ".err" appended.
func (f Folders) StepLog(p *Package, s Step, at time.Time) string {
	return path.Join(f.Log(), p.Name, p.Version, s.Path) + logSuffix(at)
}

// InterruptLog is the log file of one run of a command of an interrupt.
func (f Folders) InterruptLog(r Resource, command string, at time.Time) string {
	return path.Join(f.Log(), r.Package, r.Version, "interrupts", command) + logSuffix(at)
}

func logSuffix(at time.Time) string { return at.UTC().Format("-2006-01-02-150405") + ".log" }

// KeepLogs is how many log files of a step are kept, the newest.
const KeepLogs = 5

// Resource names one package of one generation of a NodeWright.
type Resource struct {
	// NodeWright, UID and Generation are those of the object.
	NodeWright string
	UID        string
	Generation int64
	// Package is the key in the plan, not the name in config.json.
	Package string
	Version string
}

// ID is the value of SKYHOOK_RESOURCE_ID. Packages split it at '_' into three, so none of its parts may have one.
func (r Resource) ID() string {
	return fmt.Sprintf("%s-%s-%d_%s_%s", r.NodeWright, r.UID, r.Generation, r.Package, r.Version)
}

// Valid says why the parts cannot make an ID or a folder.
func (r Resource) Valid() error {
	for name, part := range map[string]string{"NodeWright": r.NodeWright, "UID": r.UID, "package": r.Package, "version": r.Version} {
		if !plain(part) || strings.Contains(part, "_") {
			return fmt.Errorf("%s %q cannot be part of a resource's ID: it must not be empty or hold '/' or '_'", name, part)
		}
	}
	return nil
}
