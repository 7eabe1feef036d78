package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestOnARealAPIServer runs the agent's side of the cluster with the rights that the manifests give it.
func TestOnARealAPIServer(t *testing.T) {
	r := newRig(t)
	r.together(t, map[string]func(*testing.T, *rig, string){
		"publishes once, then beats and writes nothing else": publishesOnce,
		"says its truth again when it was taken for silent":  saysItAgain,
		"fills a host again that was emptied":                fillsAnEmptiedHost,
		"waits for the node":                                 waitsForTheNode,
		"follows a node that was deleted and created anew":   followsTheNode,
		"beats while its reports are swallowed":              beatsWhileReportsAreSwallowed,
		"beats while a check hangs":                          beatsWhileACheckHangs,
		"writes nothing to a foreign host":                   sparesAForeignHost,
		"takes the lease over at once after a restart":       takesOverAtOnce,
		"one of two agents of a name is silent":              oneOfTwoIsSilent,
		"joins once its kubeconfig is repaired":              joinsLater,
		"follows a kubeconfig that is replaced":              followsTheKubeconfig,
		"gets past a connection that goes nowhere":           getsPastADeadConnection,
		"writes nothing after an outage without news":        writesNothingAfterAnOutage,

		"keeps what stands of what is not decided":           keepsWhatIsPending,
		"keeps what the controller says of that":             keepsTheControllersUnknown,
		"withdraws whole what the controller owns a part of": withdrawsWholeAfterARestart,
		"copies nothing that is out of date":                 doesNotOverwriteNews,
		"shows what is never decided":                        showsWhatIsNeverDecided,
		"writes messages that change alone seldom":           writesNoiseSeldom,

		"says that leases are refused":         saysThatItsHeartIsImpaired(fault{status: http.StatusForbidden}),
		"says that leases are throttled":       saysThatItsHeartIsImpaired(fault{status: http.StatusTooManyRequests, retryAfter: 1}),
		"says that leases are not answered":    saysThatItsHeartIsImpaired(fault{delay: time.Hour}),
		"waits when it is throttled":           waitsWhenItIsThrottled,
		"lives with a slow server":             livesWithASlowServer,
		"gets over a long outage":              getsOverALongOutage,
		"tells of transitions":                 tellsOfTransitions,
		"tells of a conflict":                  tellsOfAConflict,
		"tells of its own life on the host":    tellsOfItsLife,
		"notices that its lease is deleted":    noticesADeletedLease,
		"speaks for a renamed node":            speaksForARenamedNode,
		"cleans up everything":                 withdrawsEverything,
		"cleans up nothing where nothing is":   withdrawsFromNothing,
		"cleans up nothing that is still said": sparesALivingAgent,
	})
}

func publishesOnce(t *testing.T, r *rig, node string) {
	created := r.createNode(t, node)
	r.createHost(t, node, created.UID)
	start, well := r.mark(t), finding("")
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(well)
	r.awaitSaid(t, node, allWell)
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })

	first := r.requests(t, start, p.version).Writes().Counts()
	if first["patch nodes/status"] != 1 || first["patch hosts/status"] != 1 || first["create leases"] == 0 {
		t.Errorf("requests of the start:\n%v", first)
	}
	node1 := r.node(t, node)
	if condition(node1, "Ready").Status != "True" || condition(node1, "example.com/Foreign").Status != "False" {
		t.Errorf("conditions of others changed: %+v", node1.Status.Conditions)
	}
	host := r.host(t, node)
	if !slices.Equal(host.Status.ConditionTypes, []string{"fettle.dev/Healthy", "fettle.dev/NetworkReady", "fettle.dev/StorageReady"}) ||
		host.Status.Health.Status != "Healthy" || host.Status.Agent.ID != p.o.self.ID {
		t.Errorf("host says %+v", host.Status)
	}
	lease := r.lease(t, node)
	if o := lease.OwnerReferences; *lease.Spec.HolderIdentity != p.o.self.ID || *lease.Spec.LeaseDurationSeconds != int32(beats.LeaseDuration.Seconds()) || len(o) != 1 || o[0].UID != created.UID {
		t.Errorf("lease is %+v", lease)
	}

	// The steady state, with reports that say the same.
	quiet, began := r.mark(t), time.Now()
	for range 20 {
		p.say(well)
		time.Sleep(500 * time.Millisecond)
	}
	steady := r.requests(t, quiet, p.version)
	most := int(time.Since(began)/beats.Interval) + 2
	if n := len(steady); steady.Counts()["update leases"] != n || n == 0 || n > most {
		t.Errorf("requests of %s of nothing new, want one update of the lease in %s:\n%s", time.Since(began), beats.Interval, steady)
	}

	// A change is one write each, and a type that is no longer reported goes.
	change := r.mark(t)
	bad := finding("Broken")
	p.say(finding("Flicker"))
	p.say(bad)
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Unhealthy", func() bool { return r.hostHealth(t, node) == "Unhealthy" })
	node2 := r.node(t, node)
	if was, is := condition(node1, "fettle.dev/StorageReady"), condition(node2, "fettle.dev/StorageReady"); !was.LastTransitionTime.Equal(&is.LastTransitionTime) {
		t.Errorf("a condition that did not change moved its time from %s to %s", was.LastTransitionTime, is.LastTransitionTime)
	}
	if writes := r.requests(t, change, p.version).Writes().Counts(); writes["patch nodes/status"] != 1 || writes["patch hosts/status"] != 1 {
		t.Errorf("writes for one change: %v", writes)
	}
	bad.Conditions = slices.DeleteFunc(bad.Conditions, func(c healthCondition) bool { return c.Type == "fettle.dev/StorageReady" })
	p.say(bad)
	r.awaitSaid(t, node, "Healthy=False/Broken NetworkReady=False/Broken")
	await.That(t, "the host lists two types", func() bool { return len(r.host(t, node).Status.ConditionTypes) == 2 })
	p.stop()
	if said(r.node(t, node)) != "Healthy=False/Broken NetworkReady=False/Broken" {
		t.Error("what was said changed when the agent ended")
	}
}

func fillsAnEmptiedHost(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	if _, err := r.Kubectl(t.Context(), "patch", "host", node, "--subresource=status", "--type=merge", `--patch={"status":null}`); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the host is filled", func() bool {
		host := r.host(t, node)
		return hostReady(host) == "True/HeartbeatReceived" && len(host.Status.ConditionTypes) == 3 && host.Status.Agent != nil
	})
}

func saysItAgain(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	before := r.mark(t)
	r.fallSilent(t, node)
	if said(r.node(t, node)) != silenced && said(r.node(t, node)) != netBad {
		t.Fatalf("node says %s", said(r.node(t, node)))
	}
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Ready again", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	if writes := r.requests(t, before, p.version).Writes().Counts(); writes["patch nodes/status"] != 1 || writes["patch hosts/status"] != 1 {
		t.Errorf("writes to say it again: %v", writes)
	}
	// What the controller wrote belongs to the agent again: a type that it drops goes.
	p.say(finding("Broken"))
	none := finding("Broken")
	none.Conditions = nil
	p.say(none)
	r.awaitSaid(t, node, "")
}

func waitsForTheNode(t *testing.T, r *rig, node string) {
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	await.That(t, "the agent waits", func() bool { return p.heartState() == heartbeat.WaitingForNode })
	if r.lease(t, node) != nil {
		t.Error("there is a lease without a node")
	}
	r.createHost(t, node, r.createNode(t, node).UID)
	r.awaitSaid(t, node, allWell)
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
}

func followsTheNode(t *testing.T, r *rig, node string) {
	old := r.createNode(t, node)
	r.createHost(t, node, old.UID)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	await.That(t, "the node's UID is told", func() bool { return p.known.Load() == old.UID })
	if err := r.admin.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	next := r.createNode(t, node)
	r.awaitSaid(t, node, allWell)
	await.That(t, "the lease belongs to the new node", func() bool {
		l := r.lease(t, node)
		return l != nil && len(l.OwnerReferences) == 1 && l.OwnerReferences[0].UID == next.UID
	})
	await.That(t, "the new node's UID is told", func() bool { return p.known.Load() == next.UID })
	await.That(t, "the old host is collected", func() bool {
		return client.IgnoreNotFound(r.admin.Get(t.Context(), client.ObjectKey{Name: node}, &fettlev1alpha1.Host{})) == nil && !r.hostExists(t, node)
	})
	r.createHost(t, node, next.UID)
	await.That(t, "the new host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
}

func sparesAForeignHost(t *testing.T, r *rig, node string) {
	created := r.createNode(t, node)
	// Without the owner that the controller gives it: one that does not exist would have it collected.
	foreign := &fettlev1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: fettlev1alpha1.HostSpec{NodeUID: "of-another-node"}}
	if err := r.admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	p.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
	if got := r.requests(t, controlplane.Mark{}, p.version).Writes().Counts()["patch hosts/status"]; got != 0 || hostReady(r.host(t, node)) != "" {
		t.Errorf("a foreign host was written to %d times: %+v", got, r.host(t, node).Status)
	}
	if err := r.admin.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	r.createHost(t, node, created.UID)
	await.That(t, "our own host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
}

func takesOverAtOnce(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	for range 3 {
		p := startPart(t, r.agentKubeconfig, node, state)
		p.say(finding(""))
		await.That(t, "the lease is "+p.version+"'s", func() bool { return r.holder(t, node) == p.o.self.ID })
		if looks := r.requests(t, controlplane.Mark{}, p.version).Counts()["get leases"]; looks > 1 {
			t.Errorf("%s looked at the lease %d times before it took it over", p.version, looks)
		}
		await.That(t, "the host names the new agent", func() bool {
			agent := r.host(t, node).Status.Agent
			return agent != nil && agent.ID == p.o.self.ID
		})
		p.stop()
	}
	r.awaitSaid(t, node, allWell)
}

func oneOfTwoIsSilent(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	first := startPart(t, r.agentKubeconfig, node, t.TempDir())
	first.say(finding(""))
	r.awaitSaid(t, node, allWell)
	second := startPart(t, r.agentKubeconfig, node, t.TempDir())
	look := func() { // as the check of the heartbeat does
		if second.agentHeartbeat().Conflict {
			second.say(partly([]string{"AgentReady=False/IdentityConflict", "Healthy=False/IdentityConflict"}))
		} else {
			second.say(finding("Broken"))
		}
	}
	look()
	watching := sync.WaitGroup{}
	ctx, unwatch := context.WithCancel(t.Context())
	defer watching.Wait()
	defer unwatch()
	watching.Go(func() { second.moved.each(ctx, look) })
	await.That(t, "the second sees the conflict", func() bool { return second.heartState() == heartbeat.IdentityConflict })
	time.Sleep(2 * beats.LeaseDuration)
	writes := r.requests(t, controlplane.Mark{}, second.version).Writes()
	if len(writes) != 1 || writes.Counts()["create events"] != 1 {
		t.Errorf("the second wrote, want one event:\n%s", writes)
	}
	if r.holder(t, node) != first.o.self.ID || said(r.node(t, node)) != allWell || second.status() != "not published: another agent speaks for this node" {
		t.Errorf("holder %s, node says %s, status %q", r.holder(t, node), said(r.node(t, node)), second.status())
	}
	first.stop()
	last := r.lease(t, node).Spec.RenewTime // the silence begins at the last beat, not at the stop
	await.That(t, "the second takes over", func() bool { return r.holder(t, node) == second.o.self.ID })
	if took := r.lease(t, node).Spec.AcquireTime.Sub(last.Time); took < beats.LeaseDuration-beats.Interval {
		t.Errorf("it took over %s after the last beat of the first", took)
	}
	await.That(t, "the host says Ready", func() bool {
		agent := r.host(t, node).Status.Agent
		return agent != nil && agent.ID == second.o.self.ID
	})
	r.awaitSaid(t, node, netBad)
	if n := r.requests(t, controlplane.Mark{}, second.version).Counts()["patch nodes/status"]; n != 1 {
		t.Errorf("the second wrote to the node %d times: it told of a conflict that is over", n)
	}
}

func joinsLater(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	p := startPart(t, path, node, t.TempDir())
	p.say(finding(""))
	good, err := os.ReadFile(r.agentKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "not: [yaml", "apiVersion: v1\nkind: Config\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s := p.status(); s != "not published: no API server yet" {
			t.Errorf("with %q: %s", content, s)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	r.awaitSaid(t, node, allWell)
}

func followsTheKubeconfig(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	copyFile(t, r.agentKubeconfig, path)
	p := startPart(t, path, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	// The next credential is another user, so that the audit log shows it.
	other, err := r.KubeconfigFor("next-agent", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	before := r.mark(t)
	copyFile(t, other, path)
	await.That(t, "the new credential is used", func() bool {
		return r.requests(t, before, p.version).By("next-agent").Counts()["update leases"] > 0
	})
	if p.heartState() != heartbeat.Holding || r.holder(t, node) != p.o.self.ID {
		t.Errorf("state %s, holder %s", p.heartState(), r.holder(t, node))
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) hostExists(t *testing.T, name string) bool {
	t.Helper()
	err := r.admin.Get(t.Context(), client.ObjectKey{Name: name}, &fettlev1alpha1.Host{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func (r *rig) hostHealth(t *testing.T, name string) string {
	t.Helper()
	if h := r.host(t, name).Status.Health; h != nil {
		return h.Status
	}
	return ""
}

func hostReady(h *fettlev1alpha1.Host) string {
	for _, c := range h.Status.Conditions {
		if c.Type == fettlev1alpha1.HostReady {
			return string(c.Status) + "/" + c.Reason
		}
	}
	return ""
}

func condition(node *corev1.Node, name corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (p *part) heartState() heartbeat.State {
	return p.view().Lease.State
}
