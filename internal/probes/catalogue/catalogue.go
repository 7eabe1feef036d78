// Package catalogue lists every kind of check there is and makes the configured ones.
package catalogue

import (
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/cni"
	"github.com/fettle-dev/fettle/internal/probes/network"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
	"github.com/fettle-dev/fettle/internal/probes/storage"
)

// Kinds is every kind of check, in the order in which checks are shown.
func Kinds() []probes.Kind {
	return []probes.Kind{cni.Config, network.ServiceProxy, storage.RootFilesystem}
}

// Build makes the checks that are not disabled: for the scheduler and, in the same order, for the health engine.
func Build(checks []config.Check, env probes.Env) ([]schedule.Check, []health.Check) {
	var looks []schedule.Check
	var states []health.Check
	for _, c := range checks {
		if c.Settings.Disabled {
			continue
		}
		looks = append(looks, schedule.Check{
			Name: c.Kind.Name, Probe: c.Kind.Build(env, c.Options),
			Interval: c.Settings.Interval, Timeout: c.Settings.Timeout,
		})
		states = append(states, health.Check{Name: c.Kind.Name, Condition: c.Kind.Condition, Thresholds: c.Settings.Thresholds()})
	}
	return looks, states
}
