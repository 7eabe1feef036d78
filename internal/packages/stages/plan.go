package stages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// Stage is a part of a package's life on a host.
type Stage string

// Stages, by the names that users know.
const (
	Apply              Stage = "apply"
	Upgrade            Stage = "upgrade"
	Config             Stage = "config"
	Interrupt          Stage = "interrupt"
	PostInterrupt      Stage = "post-interrupt"
	Uninstall          Stage = "uninstall"
	UninstallInterrupt Stage = "uninstall-interrupt"
)

// Plan is the work of one NodeWright on one host.
type Plan struct {
	Packages []Package
	// Serial runs one package at a time.
	Serial bool
	// Hold lets nothing new start; what runs goes on to its end.
	Hold bool
	// Admitted lets work start at all.
	Admitted bool
	// Drained lets work start that ends in an interrupt: pods have left the host.
	Drained bool
	Limits  Limits
}

// Package is one package of a plan.
type Package struct {
	// Name is the key in the plan.
	Name string
	// Version is semantic, perhaps loosely. A higher one than on the host is an upgrade, a lower one is installed anew.
	Version string
	// DependsOn has the packages that must be complete first: name to version.
	DependsOn map[string]string
	// Interrupt runs after the package was applied or uninstalled; nil for none.
	Interrupt *Disruption
	// ConfigInterrupts run when a key of the configuration changes; the keys may hold the wildcard *.
	ConfigInterrupts map[string]Disruption
	// Config has a hash of the value of every configuration key.
	Config map[string]string
	// Uninstall wants the package gone.
	Uninstall bool
	// Rerun asks once to run a stage again, and all that follows it.
	Rerun Rerun
	// Reopen lets a failed stage run again whenever it changes.
	Reopen string
}

// Rerun is a request. The zero value is none.
type Rerun struct {
	// ID tells one request from the next.
	ID string
	// Stage is Apply, Config, Interrupt or PostInterrupt.
	Stage Stage
}

// DisruptionType is what an interrupt does.
type DisruptionType string

// Types of interrupts, from the strongest to the weakest.
const (
	Reboot             DisruptionType = "reboot"
	RestartAllServices DisruptionType = "restartAllServices"
	Service            DisruptionType = "service"
	Noop               DisruptionType = "noop"
)

var strength = []DisruptionType{Noop, Service, RestartAllServices, Reboot}

// Disruption is an interrupt: what it does to the host.
type Disruption struct {
	Type DisruptionType
	// Services are systemd units to restart in order, for Service.
	Services []string
}

// Merge gives the one interrupt that serves several, given in the order of their packages' names: the strongest; of
// services all, each once. winner is the index of the first of the strongest.
func Merge(all []Disruption) (merged Disruption, winner int) {
	rank := func(d Disruption) int { return slices.Index(strength, d.Type) }
	for i, d := range all {
		if rank(d) > rank(all[winner]) {
			winner = i
		}
	}
	merged.Type = all[winner].Type
	if merged.Type != Service {
		return merged, winner
	}
	for _, d := range all {
		for _, service := range d.Services {
			if d.Type == Service && !slices.Contains(merged.Services, service) {
				merged.Services = append(merged.Services, service)
			}
		}
	}
	return merged, winner
}

// forKeys gives the interrupts that changed keys ask for, in the order of their patterns.
func (p Package) forKeys(changed []string) []Disruption {
	var out []Disruption
	for _, pattern := range sortedKeys(p.ConfigInterrupts) {
		if slices.ContainsFunc(changed, func(key string) bool { return MatchKey(pattern, key) }) {
			out = append(out, p.ConfigInterrupts[pattern])
		}
	}
	return out
}

// MatchKey reports whether a configuration key matches a pattern, in which * stands for any characters, also none.
func MatchKey(pattern, key string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == key
	}
	key, ok := strings.CutPrefix(key, first)
	if !ok {
		return false
	}
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(key, part)
		}
		at := strings.Index(key, part)
		if at < 0 {
			return false
		}
		key, rest = key[at+len(part):], more
	}
}

// Limits bound what is done about failures.
type Limits struct {
	// Retries is how often a failed stage is run again before it is given up.
	Retries int
	// FailedTTL is after how long a stage that was given up is run again; zero for never.
	FailedTTL time.Duration
}

// compareVersions orders versions. Those that are not semantic sort first, by their text.
func compareVersions(a, b string) int {
	va, errA := semver.NewVersion(a)
	vb, errB := semver.NewVersion(b)
	switch {
	case errA == nil && errB == nil:
		return va.Compare(vb)
	case errA == nil:
		return 1
	case errB == nil:
		return -1
	}
	return cmp.Compare(a, b)
}
