package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/report"
)

// clusterView is how the agent's side of the API server stands at one moment.
type clusterView struct {
	// Standalone : there is no cluster by intention.
	Standalone bool
	// Joined : an API server was found, at Server, as Origin says.
	Joined         bool
	Server, Origin string
	// Sessions counts the API servers joined so far, the same one again included.
	Sessions int
	// Lease is where the heartbeat stands; its state is empty while nothing is joined.
	Lease heartbeat.Status
	// Holds : this process may speak for the node.
	Holds bool
	// Beats are those of this session.
	Beats heartbeat.Beats
	// Holder is the identity of this process on the Lease.
	Holder string
	// Publishing is how publishing stands, empty while nothing is joined, and LastApplied when the conditions on the Node
	// were last written or found right; zero: not in this session.
	Publishing  report.Status
	LastApplied time.Time
	// Words sums it up for people.
	Words string
	// Calls are those of this process, by purpose.
	Calls  map[string]kubeclient.CallCounts
	Events report.EventCounts
}

// clusterCalls counts calls by purpose.
type clusterCalls struct{ heartbeat, report, events kubeclient.Calls }

// current is the session there is; nil: none.
func (c *cluster) current() (s *session, alone bool, sessions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.alone, c.attempts
}

// view says how everything stands.
func (c *cluster) view() clusterView {
	s, alone, sessions := c.current()
	v := clusterView{
		Standalone: alone, Sessions: sessions, Holder: c.o.self.ID, Words: c.status(), Events: c.events.Counts(),
		Calls: map[string]kubeclient.CallCounts{
			"heartbeat": c.calls.heartbeat.Counts(),
			"report":    c.calls.report.Counts(),
			"events":    c.calls.events.Counts(),
		},
	}
	if s == nil {
		return v
	}
	v.Joined, v.Server, v.Origin = true, s.candidate.Config.Host, s.candidate.Origin
	v.Lease, v.Holds, v.Beats = s.heart.Status(), s.heart.Holds(), s.heart.Beats()
	v.Publishing, v.LastApplied = s.reporter.Status(), s.reporter.LastApplied()
	return v
}

// status says in a few words how publishing stands.
func (c *cluster) status() string {
	s, alone, _ := c.current()
	switch {
	case alone:
		return "standalone"
	case s == nil:
		return "not published: no API server yet"
	}
	if s.heart.Status().State == heartbeat.IdentityConflict {
		return "not published: another agent speaks for this node"
	}
	return string(s.reporter.Status())
}

// agentHeartbeat says how the Lease stands, for the check of the agent itself.
func (c *cluster) agentHeartbeat() probes.Heartbeat {
	s, alone, _ := c.current()
	if s == nil {
		return probes.Heartbeat{Joined: !alone}
	}
	h := probes.Heartbeat{Joined: true}
	switch lease := s.heart.Status(); {
	case lease.State == heartbeat.IdentityConflict:
		h.Conflict, h.Detail = true, lease.Detail
	case lease.Impaired:
		h.Impaired, h.Detail = true, lease.Fault
	}
	return h
}

func (c *cluster) nodeUID() types.UID {
	s, _, _ := c.current()
	if s == nil {
		return ""
	}
	return s.heart.Status().NodeUID
}

// hostUID is that of the node's own Host; empty: there is none.
func (c *cluster) hostUID() types.UID {
	s, _, _ := c.current()
	if s == nil {
		return ""
	}
	host := s.host.Load()
	if host == nil || host.Spec.NodeUID != s.heart.Status().NodeUID {
		return ""
	}
	return host.UID
}

// settled reports whether everything that is more urgent than an event is written.
func (c *cluster) settled() bool {
	s, _, _ := c.current()
	if s == nil {
		return false
	}
	lease := s.lease()
	return lease == report.Held && s.reporter.Status() == report.Published || lease == report.Impaired
}
