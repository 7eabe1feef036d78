package agent

import (
	"errors"
	"slices"
	"testing"

	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
)

func TestWhatIsSeenOfTheCluster(t *testing.T) {
	view := clusterView{}
	s := seeing{awake: func() bool { return true }, cluster: func() clusterView { return view }}
	if c := s.Cluster(); c == nil || c.Joined || c.Lease.Held || c.Publishing.Current {
		t.Errorf("while no API server was found: %+v", c)
	}
	view = clusterView{
		Joined: true, Server: "https://a", Origin: "kubeconfig", Holds: true, Publishing: report.Published, Words: "published",
		Lease: heartbeat.Status{State: heartbeat.Holding}, Beats: heartbeat.Beats{Tried: 5, Stored: 3},
		Calls:  map[string]kubeclient.CallCounts{"report": {Answered: 7, Unanswered: 2}},
		Events: report.EventCounts{Sent: 1, Dropped: 4},
	}
	if c := s.Cluster(); !c.Joined || !c.Lease.Held || !c.Publishing.Current || len(endpoints.Unready(endpoints.Status{Health: endpoints.Health{Decided: true}, Cluster: c})) != 0 {
		t.Errorf("%+v", c)
	}
	n := s.Counters()
	if n.LeaseRenewals != 3 || n.LeaseFailures != 2 || n.EventsDropped != 4 || !slices.Contains(n.Calls, endpoints.Calls{Purpose: "report", Answered: 7, Unanswered: 2}) {
		t.Errorf("%+v", n)
	}
	view.Publishing = report.Failing
	if c := s.Cluster(); c.Publishing.Current {
		t.Errorf("%+v", c)
	}
	view = clusterView{Standalone: true}
	if s.Cluster() != nil || s.Credential() != nil {
		t.Error("an agent that is alone has a cluster")
	}
}

func TestWhatIsSeenOfTheConfiguration(t *testing.T) {
	now := reload.Status{Path: "/f", Generation: 2, Hash: "h"}
	s := seeing{configuration: func() reload.Status { return now }}
	if c := s.Configuration(); c.Path != "/f" || c.Generation != 2 || c.Hash != "h" || c.Fault != "" || c.RestartNeeded != nil {
		t.Errorf("%+v", c)
	}
	now.Fault = &reload.RestartNeeded{Keys: []string{"stateDir"}}
	if c := s.Configuration(); c.Fault != "" || !slices.Equal(c.RestartNeeded, []string{"stateDir"}) {
		t.Errorf("%+v", c)
	}
	now.Fault = &reload.Fault{Cause: errors.New("line 3"), InForce: "the last valid file"}
	if c := s.Configuration(); c.Fault != "line 3; in force: the last valid file" || c.RestartNeeded != nil {
		t.Errorf("%+v", c)
	}
}

func TestAStalledAgentSaysSo(t *testing.T) {
	awake := true
	s := seeing{awake: func() bool { return awake }}
	if why := s.Stalled(); why != "" {
		t.Error(why)
	}
	awake = false
	if s.Stalled() == "" {
		t.Error("it is not seen")
	}
}
