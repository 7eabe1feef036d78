// Package catalogue lists every kind of check there is and makes the configured ones.
package catalogue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/cni"
	"github.com/fettle-dev/fettle/internal/probes/custom"
	"github.com/fettle-dev/fettle/internal/probes/kernel"
	"github.com/fettle-dev/fettle/internal/probes/network"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
	"github.com/fettle-dev/fettle/internal/probes/self"
	"github.com/fettle-dev/fettle/internal/probes/storage"
)

// Kinds is every kind of check, in the order in which checks are shown.
func Kinds() []probes.Kind {
	return []probes.Kind{
		cni.Config, network.ServiceProxy, network.Interfaces, network.DefaultRoute, storage.RootFilesystem,
		storage.Filesystems, storage.Mount,
		kernel.Clock, kernel.ProcessIDs, kernel.FileHandles, kernel.Conntrack,
		runtime.ContainerRuntime, runtime.RuntimeNetwork, runtime.Kubelet, runtime.Units,
		self.Config, self.Heartbeat,
		custom.Exec, custom.HTTP, custom.TCP, custom.File,
	}
}

// Build makes the checks that are not disabled: for the scheduler and, in the same order, for the health engine.
func Build(checks []config.Check, env probes.Env) ([]schedule.Check, []health.Check) {
	var looks []schedule.Check
	var states []health.Check
	disabled := map[string]bool{}
	for _, c := range checks {
		disabled[c.Settings.Name] = c.Settings.Disabled
	}
	for _, c := range checks {
		if c.Settings.Disabled {
			continue
		}
		definition := definitionOf(c)
		looks = append(looks, schedule.Check{
			Name: c.Settings.Name, Probe: c.Kind.Build(env, c.Options), Definition: definition,
			Interval: c.Settings.Interval, Timeout: c.Settings.Timeout,
		})
		state := stateOf(c.Settings, disabled)
		state.Definition = definition
		states = append(states, state)
	}
	return looks, states
}

// stateOf is what the health engine needs to know of a check. One that depends on a disabled check stands by itself.
func stateOf(s config.CheckSettings, disabled map[string]bool) health.Check {
	return health.Check{
		Name: s.Name, Condition: string(s.Condition), Thresholds: s.Thresholds(), Severity: s.Severity,
		MinHold: s.MinHold, Flapping: health.Flapping(s.Flapping), StaleAfter: s.StaleAfter, Clearing: s.Clearing,
		DependsOn: slices.DeleteFunc(slices.Clone(s.DependsOn), func(name string) bool { return disabled[name] }),
		DryRun:    s.DryRun,
	}
}

// definitionOf is one word for what a check looks at and how: its kind and options, not how often. The condition that it
// feeds, the engine compares by itself.
func definitionOf(c config.Check) string {
	options := map[string]any{}
	for _, s := range strict.Settings(c.Options) {
		options[s.Path] = s.Plain(false)
	}
	text, err := json.Marshal([]any{c.Kind.Name, options})
	if err != nil {
		panic("catalogue: options of " + c.Kind.Name + ": " + err.Error()) // texts, numbers and truth values
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
