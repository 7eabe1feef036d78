package endpoints

import (
	"cmp"
	"strings"

	"github.com/fettle-dev/fettle/internal/health"
)

// Unready gives the reasons why an agent is not ready; none: it is. An agent is ready when everything that it is there to
// do works, whatever it has found: every check is decided, and in a cluster the latest is published and the lease held.
func Unready(s Status) []string {
	var reasons []string
	if s.Agent.Stalled != "" {
		reasons = append(reasons, s.Agent.Stalled)
	}
	if !s.Health.Decided {
		reasons = append(reasons, undecided(s.Health))
	}
	switch c := s.Cluster; {
	case c == nil:
	case !c.Joined:
		reasons = append(reasons, "the cluster is not joined: "+cmp.Or(c.Publishing.Detail, "no API server was found yet"))
	default:
		if !c.Lease.Held {
			reasons = append(reasons, "the lease is not held: "+said(c.Lease.State, c.Lease.Detail))
		}
		if !c.Publishing.Current {
			reasons = append(reasons, "the latest is not published: "+cmp.Or(c.Publishing.Detail, "not yet"))
		}
	}
	return reasons
}

func undecided(h Health) string {
	var names []string
	for _, c := range h.Checks {
		if c.Reason == health.ReasonPending {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "checks are not decided yet"
	}
	return "checks are not decided yet: " + strings.Join(names, ", ")
}

func said(state, detail string) string {
	if detail == "" {
		return state
	}
	return state + ": " + detail
}
