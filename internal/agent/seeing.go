package agent

import (
	"errors"
	"slices"

	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
)

// seeing answers the endpoints from the agent's parts, none of which it makes wait.
type seeing struct {
	awake         func() bool
	configuration func() reload.Status
	cluster       func() clusterView
	credential    func() *endpoints.Credential // nil where there is none
}

// Stalled says why the agent makes no progress; empty while it does.
func (s seeing) Stalled() string {
	if s.awake() {
		return ""
	}
	return "the agent makes no progress: for ten seconds no check was looked at"
}

// Configuration is what is in force, and what is wrong with what is not.
func (s seeing) Configuration() endpoints.Configuration {
	now := s.configuration()
	c := endpoints.Configuration{Path: now.Path, Hash: now.Hash, Generation: uint64(now.Generation), LoadedAt: now.LoadedAt}
	var restart *reload.RestartNeeded
	switch {
	case errors.As(now.Fault, &restart):
		c.RestartNeeded = slices.Clone(restart.Keys)
	case now.Fault != nil:
		c.Fault = now.Fault.Error()
	}
	return c
}

// Cluster is how the agent stands with the API server; nil where there is none by intention.
func (s seeing) Cluster() *endpoints.Cluster {
	v := s.cluster()
	if v.Standalone {
		return nil
	}
	return &endpoints.Cluster{
		Joined: v.Joined, Server: v.Server, Origin: v.Origin, LastApplied: v.LastApplied,
		Lease:      endpoints.Lease{Held: v.Holds, State: string(v.Lease.State), Detail: v.Lease.Detail, RenewedAt: v.Beats.Renewed},
		Publishing: endpoints.Publishing{Current: v.Publishing == report.Published, Detail: v.Words},
	}
}

// Credential is what the API server is shown.
func (s seeing) Credential() *endpoints.Credential {
	if s.credential == nil {
		return nil
	}
	return s.credential()
}

// Counters are those of the session with the API server, and of all calls.
func (s seeing) Counters() endpoints.Counters {
	v := s.cluster()
	c := endpoints.Counters{
		LeaseRenewals: v.Beats.Stored, LeaseFailures: v.Beats.Tried - v.Beats.Stored,
		EventsSent: v.Events.Sent, EventsDropped: v.Events.Dropped,
	}
	for _, purpose := range []string{"heartbeat", "report", "events"} {
		c.Calls = append(c.Calls, callsOf(purpose, v.Calls[purpose]))
	}
	return c
}

func callsOf(purpose string, n kubeclient.CallCounts) endpoints.Calls {
	return endpoints.Calls{
		Purpose: purpose, Answered: n.Answered, Refused: n.Refused, Throttled: n.Throttled, Failed: n.Failed, Unanswered: n.Unanswered,
	}
}
