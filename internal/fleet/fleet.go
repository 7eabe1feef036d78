package fleet

import (
	"time"

	"github.com/fettle-dev/fettle/internal/reasons"
)

// Verdict says how far silence may be acted on.
type Verdict string

const (
	// Normal : silence is acted on as it comes.
	Normal Verdict = "Normal"
	// Partial : more agents fell silent than may be acted on in a window; the others wait for the next one.
	Partial Verdict = "Partial"
	// Suspended : so many agents are stale that no silence is acted on.
	Suspended Verdict = "Suspended"
	// Blind : the controller cannot see agents, living or dead.
	Blind Verdict = "Blind"
)

// Verdicts are all of them, from the mildest to the gravest.
var Verdicts = []Verdict{Normal, Partial, Suspended, Blind}

// Acts reports whether silence is acted on at all. Nothing that takes a node away may begin while it does not.
func (v Verdict) Acts() bool { return v == Normal || v == Partial }

func (v Verdict) gravity() int {
	for i, each := range Verdicts {
		if each == v {
			return i
		}
	}
	return 0 // the zero value is Normal
}

// Limits are what a fleet is judged by.
type Limits struct {
	// Window is how long a silence counts as new.
	Window time.Duration
	// MaxSilences is how many silences are acted on in a window at most.
	MaxSilences int
	// MaxSilencesPercent is the same as a part of all agents, from 0 to 100; the smaller of both counts, and one is always
	// allowed.
	MaxSilencesPercent int
	// SuspendAbovePercent of all agents stale or new in silence, and more than two of them, suspend: 0 to 100.
	SuspendAbovePercent int
	// Cooldown is how long a milder verdict must have been right before it is taken.
	Cooldown time.Duration
}

// DefaultLimits are used where no policy says otherwise. Source: reference 2.5, numbers after kube-controller-manager's
// eviction rate (6 nodes a minute) and Karpenter's repair limit (20 % of the nodes).
func DefaultLimits() Limits {
	return Limits{Window: time.Minute, MaxSilences: 20, MaxSilencesPercent: 10, SuspendAbovePercent: 30, Cooldown: 2 * time.Minute}
}

// Allowed is how many silences may be acted on in one window, in a fleet of that many agents.
func (l Limits) Allowed(agents int) int {
	return max(1, min(l.MaxSilences, agents*l.MaxSilencesPercent/100))
}

// suspendAtLeast is a number of agents below which no share of them suspends: two machines may well fail together.
const suspendAtLeast = 3

func (l Limits) suspends(lost, agents int) bool {
	return lost >= suspendAtLeast && lost*100 > l.SuspendAbovePercent*agents
}

// Override is a person's verdict in place of the computed one. The zero value is none.
type Override struct {
	Verdict Verdict
	// Until is when it ends by itself, by the controller's clock.
	Until time.Time
	// Reason is why, in words.
	Reason string
}

// InForce reports whether the override counts now.
func (o Override) InForce(now time.Time) bool { return o.Verdict != "" && now.Before(o.Until) }

// Policy is what people decide about silence.
type Policy struct {
	Limits   Limits
	Override Override
}

// Sight says whether the controller sees what agents do.
type Sight struct {
	// Proven is true once something of which the controller knows that it happened reached it the way beats do. Before, no
	// silence is acted on.
	Proven bool
	// Lost is the reason, from Reasons, for which nothing can be seen; empty while it can.
	Lost string
	// Message says more of Lost.
	Message string
}

// Observation is what the fleet looks like at one moment.
type Observation struct {
	// Agents that should be heard: not those away on purpose, those that never reported, or those known to be silent.
	Agents int
	// Stale agents among them have let their lease run out.
	Stale int
	// Waiting agents among the stale ones are past their grace period: their silence would be acted on now.
	Waiting int

	Sight Sight
}

// Reasons of verdicts. They are API: alerts match on them.
var Reasons = reasons.Table{
	{Name: ReasonAgentsHeard, Severity: reasons.Info, Says: "agents are heard, and each silence is acted on", Do: "nothing"},
	{Name: ReasonLimitReached, Severity: reasons.Degraded, Says: "more agents fell silent in the window than may become Unknown in it; the others wait",
		Do: "look what the silent nodes have in common; if they are really gone and waiting is wrong, override the verdict with Normal"},
	{Name: ReasonManyStale, Severity: reasons.Fatal, Says: "so many agents let their leases run out at once that no silence is acted on",
		Do: "look at the network between the nodes and the API server, and at the agents' DaemonSet; if the nodes are really gone, override the verdict with Partial or Normal"},
	{Name: ReasonAPIUnreachable, Severity: reasons.Unknown, Says: "the API server does not answer the controller, or answers with errors",
		Do: "look at the API server and the controller's way to it"},
	{Name: ReasonLeasesForbidden, Severity: reasons.Unknown, Says: "the controller may not read leases of agents, or not renew its own beside them",
		Do: "apply deploy/controller, which has the rights"},
	{Name: ReasonLeasesMissing, Severity: reasons.Unknown, Says: "the namespace of the leases is gone or is being deleted",
		Do: "apply deploy/controller, which has the namespace; agents make their leases anew"},
	{Name: ReasonWatchStalled, Severity: reasons.Unknown, Says: "the API server answers, but what changes there does not reach the controller through its watch of leases",
		Do: "look at the API server's load and at the proxies before it; if it lasts, restart the controller"},
	{Name: ReasonNotOverridden, Severity: reasons.Info, Says: "nobody has set the verdict", Do: "nothing"},
	{Name: ReasonOverrideExpired, Severity: reasons.Info, Says: "the override in the FleetPolicy has ended", Do: "remove it, or set a later end"},
	{Name: ReasonOverridden, Severity: reasons.Info, Says: "a person has set the verdict, in the FleetPolicy", Do: "remove the override when it is no longer needed; it ends by itself"},
}

// Names of Reasons.
const (
	ReasonAgentsHeard     = "AgentsHeard"
	ReasonLimitReached    = "LimitReached"
	ReasonManyStale       = "ManyStale"
	ReasonAPIUnreachable  = "APIUnreachable"
	ReasonLeasesForbidden = "LeasesForbidden"
	ReasonLeasesMissing   = "LeasesMissing"
	ReasonWatchStalled    = "WatchStalled"
	ReasonNotOverridden   = "NotOverridden"
	ReasonOverrideExpired = "OverrideExpired"
	ReasonOverridden      = "Overridden"
)
