package self

import (
	"context"
	"errors"
	"time"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of agent-config.
const (
	ConfigurationInvalid      = "ConfigurationInvalid"
	ConfigurationNeedsRestart = "ConfigurationNeedsRestart"
)

// configReasons are API.
var configReasons = reasons.Table{
	{Name: ConfigurationInvalid, Severity: reasons.Degraded, Says: "the newest configuration has faults and is not in force", Do: "correct what the message names; `nodeagent config validate` shows all faults at once"},
	{Name: ConfigurationNeedsRestart, Severity: reasons.Degraded, Says: "the newest configuration changes keys that only a new start of the agent puts in force", Do: "restart the agent when it suits"},
}

// NoOptions : there is nothing to configure.
type NoOptions struct{}

// Config is the check "agent-config": is the newest configuration in force?
//
// The agent runs on with the last good one, so the machine is looked at all the same: the fault is one to be seen, and no
// reason to keep work away from the machine.
var Config = probes.Define(probes.Kind{
	Name:        "agent-config",
	Condition:   fettlev1alpha1.ConditionAgentReady,
	Description: "Tells whether the agent's newest configuration is in force.",
	Reasons:     configReasons,
	Interval:    time.Minute,
	Timeout:     time.Second,
	Thresholds:  health.Thresholds{Failure: 1, Success: 1},
}, func() NoOptions { return NoOptions{} }, func(env probes.Env, _ NoOptions) probes.Probe { return configCheck{env.Agent} })

type configCheck struct{ agent probes.Agent }

// Run looks once.
func (c configCheck) Run(context.Context) health.Result {
	if c.agent.ConfigFault == nil {
		return judgeConfig(nil)
	}
	return judgeConfig(c.agent.ConfigFault())
}

// Watch has a look whenever a configuration was taken or refused.
func (c configCheck) Watch(ctx context.Context, look func()) {
	if c.agent.WatchConfig != nil {
		c.agent.WatchConfig(ctx, look)
	}
}

func judgeConfig(fault error) health.Result {
	var restart *reload.RestartNeeded
	switch {
	case fault == nil:
		return probes.OK("the newest configuration is in force")
	case errors.As(fault, &restart):
		return probes.Because(configReasons, ConfigurationNeedsRestart, "%s", fault)
	default:
		return probes.Because(configReasons, ConfigurationInvalid, "%s", fault)
	}
}
