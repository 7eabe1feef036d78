package stages

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// State is what became of a stage.
type State string

// States, by the names that users know.
const (
	InProgress State = "in_progress"
	Complete   State = "complete"
	// Skipped : the package waits at its interrupt for the one that another package runs for both.
	Skipped State = "skipped"
	// Erroring : the stage failed, and was given up for now.
	Erroring State = "erroring"
)

// Host is what became of a NodeWright's packages on a host. It is a value: no function of this package changes one that it
// is given.
type Host struct {
	// Records are sorted by name, then version. A package that has none was not begun, or is uninstalled.
	Records []Record
	// Interruption is under way, or nil.
	Interruption *Interruption
}

// Record is one version of a package on the host.
type Record struct {
	Name, Version string
	Stage         Stage
	State         State
	// Running : a task of this stage began and was not finished.
	Running bool
	// InterruptPending : the package's own interrupt is owed.
	InterruptPending bool
	// Config has the hashes of the configuration that the config stage was, or is to be, run with; it counts once Configured.
	Config     map[string]string
	Configured bool
	// Changed are the keys that changed since the last interrupt, sorted.
	Changed []string
	// Failures of the stage in a row, and the time of the last.
	Failures    int
	LastFailure time.Time
	// Fresh : a stage was asked for again, so nothing that it or those after it did before counts.
	Fresh bool
	// Epoch counts the times that the record was sent to the beginning of a stage: a task of an earlier one is to be stopped.
	Epoch int
	// Rerun is the ID of the last request that was honoured.
	Rerun string
	// Reopen as of the last failure or begin.
	Reopen string
}

// Interruption is an interrupt that began.
type Interruption struct {
	Disruption Disruption
	// Members are the packages that it serves, by name; Carrier is the one whose interrupt is run.
	Members []string
	Carrier string
	// Epochs of the members' records when it began.
	Epochs map[string]int
	// Failures in a row, and the time of the last.
	Failures    int
	LastFailure time.Time
	// Running : it began and was not finished. Otherwise it waits to be run again, or was given up.
	Running bool
	// Failed : it was given up.
	Failed bool
}

func (h Host) clone() Host {
	h.Records = slices.Clone(h.Records)
	if h.Interruption != nil {
		copied := *h.Interruption
		h.Interruption = &copied
	}
	return h
}

// Record returns the record of a version of a package.
func (h Host) Record(name, version string) (Record, bool) {
	for _, r := range h.Records {
		if r.Name == name && r.Version == version {
			return r, true
		}
	}
	return Record{}, false
}

// put adds or replaces a record. The host must be a clone.
func (h *Host) put(r Record) {
	at, found := slices.BinarySearchFunc(h.Records, r, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	if found {
		h.Records[at] = r
	} else {
		h.Records = slices.Insert(h.Records, at, r)
	}
}

// drop removes the records of a package that match. The host must be a clone.
func (h *Host) drop(name string, match func(Record) bool) {
	h.Records = slices.DeleteFunc(h.Records, func(r Record) bool { return r.Name == name && match(r) })
}

// applied reports whether the version's files are on the host as its apply or upgrade stage left them.
func (r Record) applied() bool {
	return r.State == Complete || r.Stage != Apply && r.Stage != Upgrade
}

// leaving : the version is being uninstalled.
func (r Record) leaving() bool { return r.Stage == Uninstall || r.Stage == UninstallInterrupt }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
