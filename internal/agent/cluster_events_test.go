package agent

import (
	"errors"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/test/await"
)

// network tells of a transition of the check "net" to a reason; empty: it is well.
func network(p *part, reason string) {
	after := health.CheckState{Name: "net", Result: health.Result{Verdict: health.OK, Reason: health.ReasonOK}}
	if reason != "" {
		after.Result = health.Result{Verdict: health.Fatal, Reason: reason, Message: "no CNI configuration"}
	}
	p.transition(health.CheckState{Name: "net", Result: health.Result{Verdict: health.Unknown, Reason: health.ReasonPending}}, after, "fettle.dev/NetworkReady")
}

// events of a Node, of our agents.
func (r *rig) events(t *testing.T, node string) []eventsv1.Event {
	t.Helper()
	return r.eventsAbout(t, "Node", node)
}

// eventsAbout an object, of our agents.
func (r *rig) eventsAbout(t *testing.T, kind, name string) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	if err := r.admin.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	var ours []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name && e.ReportingController == "fettle-nodeagent" {
			ours = append(ours, e)
		}
	}
	return ours
}

// tellsOfTransitions : with the real kubectl, since its describe looks for events by what they are about.
func tellsOfTransitions(t *testing.T, r *rig, node string) {
	created := r.createNode(t, node)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	network(p, "")
	for told, reason := range []string{"Broken", "", "Broken", ""} {
		network(p, reason)
		await.That(t, "it is told", func() bool { return p.view().Events.Sent == uint64(told+1) })
	}
	got := map[string]eventsv1.Event{}
	for _, e := range r.events(t, node) {
		got[e.Type+" "+e.Reason] = e
		if e.Regarding.UID != created.UID || e.Series == nil || e.Series.Count != 2 {
			t.Errorf("event is %+v, want a series of 2 about the node", e)
		}
	}
	if got["Warning Broken"].Note != "net: no CNI configuration (fettle.dev/NetworkReady)" || got["Normal OK"].Note != "net is well again after Broken (fettle.dev/NetworkReady)" {
		t.Errorf("events are %+v", got)
	}
	described, err := r.Kubectl(t.Context(), "describe", "node", node)
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(described, "\nEvents:")
	for _, want := range []string{"Broken", "fettle-nodeagent", "no CNI configuration", "x2 over"} {
		if !strings.Contains(shown, want) {
			t.Errorf("kubectl describe node does not show %q among its events:\n%s", want, shown)
		}
	}
}

// tellsOfItsLife : on the Host, once there is one; what its checks find is on the Node alone.
func tellsOfItsLife(t *testing.T, r *rig, node string) {
	created := r.createNode(t, node)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.started(errors.New("health.json: cut short"))
	p.say(finding(""))
	p.setRuntime(report.Runtime{Reachable: true})
	r.awaitSaid(t, node, allWell)
	network(p, "Broken")
	await.That(t, "the fault is told", func() bool { return len(r.events(t, node)) == 1 })
	if early := r.eventsAbout(t, "Host", node); len(early) > 0 {
		t.Errorf("there is no host, and of it is told %+v", early)
	}
	r.createHost(t, node, created.UID)
	await.That(t, "the start is told", func() bool { return len(r.eventsAbout(t, "Host", node)) == 2 })
	p.reconfigured(reload.Status{Generation: 2, Path: "/etc/fettle/nodeagent.yaml", Hash: "0123456789ab"})
	p.faultLost(health.Lost{Check: "disk", Condition: "fettle.dev/StorageReady", Latch: health.Latch{Reason: "ReadOnly", Message: "/ is read-only"}})
	await.That(t, "all is told", func() bool { return len(r.eventsAbout(t, "Host", node)) == 4 })
	described, err := r.Kubectl(t.Context(), "describe", "host", node)
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(described, "\nEvents:")
	for _, want := range []string{
		"AgentStarted", p.o.self.ID, "StateLost", "health.json: cut short", "ConfigurationTaken", "generation 2", "LatchedFaultLost", "/ is read-only", "fettle-nodeagent",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("kubectl describe host does not show %q among its events:\n%s", want, shown)
		}
	}
	if got := r.events(t, node); len(got) != 1 {
		t.Errorf("of the node is told %+v", got)
	}
}

// tellsOfAConflict : an agent that is silent because another one speaks for its node tells of that, and of nothing else.
func tellsOfAConflict(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	first := startPart(t, r.agentKubeconfig, node, t.TempDir())
	first.say(finding(""))
	r.awaitSaid(t, node, allWell)
	second := startPart(t, r.agentKubeconfig, node, t.TempDir())
	second.say(finding("Broken"))
	network(second, "Broken")
	await.That(t, "the conflict is told", func() bool { return len(r.events(t, node)) > 0 })
	if e := r.events(t, node)[0]; len(r.events(t, node)) != 1 || e.Reason != "IdentityConflict" || e.Type != "Warning" ||
		!strings.Contains(e.Note, first.o.self.ID) || e.ReportingInstance != second.o.self.ID {
		t.Errorf("events are %+v", r.events(t, node))
	}
	if h := second.agentHeartbeat(); !h.Conflict || !strings.Contains(h.Detail, first.o.self.ID) {
		t.Errorf("heartbeat is %+v", h)
	}
	if v := second.view(); v.Lease.State != heartbeat.IdentityConflict || v.Holds || v.Words != "not published: another agent speaks for this node" {
		t.Errorf("view is %+v", v)
	}
}

// noticesADeletedLease : it is made anew, and everything is read and compared.
func noticesADeletedLease(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	was := r.lease(t, node)
	r.setCondition(t, node, "fettle.dev/NetworkReady", "False")
	if err := r.admin.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	await.That(t, "there is a new lease", func() bool { l := r.lease(t, node); return l != nil && l.UID != was.UID })
	r.awaitSaid(t, node, allWell)
}

// speaksForARenamedNode : under its new name a machine has no past, and its old node is the controller's.
func speaksForARenamedNode(t *testing.T, r *rig, node string) {
	renamed, state := node+"-renamed", t.TempDir()
	r.createNode(t, node)
	r.createNode(t, renamed)
	first := startPart(t, r.agentKubeconfig, node, state)
	first.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
	first.stop()
	old, lease := r.node(t, node), r.lease(t, node)
	second := startPart(t, r.agentKubeconfig, renamed, state)
	second.say(finding(""))
	r.awaitSaid(t, renamed, allWell)
	if r.holder(t, renamed) != second.o.self.ID {
		t.Errorf("the new node's lease is held by %s", r.holder(t, renamed))
	}
	if now := r.lease(t, node); now.ResourceVersion != lease.ResourceVersion {
		t.Errorf("the old node's lease was written: %+v", now)
	}
	if now := r.node(t, node); !equality.Semantic.DeepEqual(now.Status.Conditions, old.Status.Conditions) {
		t.Errorf("the old node's conditions were written: %s", said(now))
	}
}
