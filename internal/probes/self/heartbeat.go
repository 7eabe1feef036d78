package self

import (
	"context"
	"time"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of agent-heartbeat.
const (
	HeartbeatImpaired = fettlev1alpha1.ReasonHeartbeatImpaired
	IdentityConflict  = "IdentityConflict"
)

// heartbeatReasons are API.
var heartbeatReasons = reasons.Table{
	{Name: HeartbeatImpaired, Severity: reasons.Fatal, Says: "the agent's lease cannot be renewed though the API server answers, so that the agent counts as silent", Do: "look at the agent's rights to leases in the namespace fettle-node-lease, and at what limits requests for leases"},
	{Name: IdentityConflict, Severity: reasons.Fatal, Says: "another living agent holds the lease of this node, so that this one stays silent", Do: "stop one of the two, or give them different node names"},
}

// Heartbeat is the check "agent-heartbeat": can the agent say that it is alive, and is it the only one who speaks for its
// node?
//
// An agent that may not write its lease can still write the node's status, and says so there while it falls silent. One
// that is in conflict writes nothing there; it shows in the agent's own status, in its log and in an event.
var Heartbeat = probes.Define(probes.Kind{
	Name:        "agent-heartbeat",
	Condition:   fettlev1alpha1.ConditionAgentReady,
	Description: "Tells whether the agent can renew its lease, and whether no other agent holds it.",
	Reasons:     heartbeatReasons,
	Interval:    10 * time.Second,
	Timeout:     time.Second,
	Thresholds:  health.Thresholds{Failure: 1, Success: 1},
}, func() NoOptions { return NoOptions{} }, func(env probes.Env, _ NoOptions) probes.Probe { return heartbeatCheck{env.Agent} })

type heartbeatCheck struct{ agent probes.Agent }

// Run looks once.
func (c heartbeatCheck) Run(context.Context) health.Result {
	if c.agent.Heartbeat == nil {
		return judgeHeartbeat(probes.Heartbeat{})
	}
	return judgeHeartbeat(c.agent.Heartbeat())
}

// Watch has a look whenever the lease stands otherwise: what was found before would be told of an agent that is no longer so.
func (c heartbeatCheck) Watch(ctx context.Context, look func()) {
	if c.agent.WatchHeartbeat != nil {
		c.agent.WatchHeartbeat(ctx, look)
	}
}

func judgeHeartbeat(h probes.Heartbeat) health.Result {
	switch {
	case !h.Joined:
		return probes.NotApplicable("the agent runs without a cluster")
	case h.Conflict:
		return probes.Because(heartbeatReasons, IdentityConflict, "%s", h.Detail)
	case h.Impaired:
		return probes.Because(heartbeatReasons, HeartbeatImpaired, "%s", h.Detail)
	default:
		return probes.OK("no fault of the lease is known")
	}
}
