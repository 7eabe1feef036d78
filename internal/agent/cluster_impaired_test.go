package agent

import (
	"net/http"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/test/await"
)

const impairedWord = "AgentReady=False/HeartbeatImpaired"

// saysThatItsHeartIsImpaired : leases are refused, or not answered, and all else works. The agent falls silent, says why
// once, and changes nothing else that stands on its node.
func saysThatItsHeartIsImpaired(f fault) func(*testing.T, *rig, string) {
	return func(t *testing.T, r *rig, node string) {
		r.createHost(t, node, r.createNode(t, node).UID)
		g, kubeconfig := r.gated(t)
		p := startPart(t, kubeconfig, node, t.TempDir())
		p.say(partly([]string{"AgentReady=True/OK", "NetworkReady=True/OK", "StorageReady=True/OK"}))
		await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
		if h := p.agentHeartbeat(); !h.Joined || h.Impaired || h.Conflict {
			t.Errorf("heartbeat is %+v", h)
		}

		g.set(all(aboutLeases, f))
		await.That(t, "the agent knows", func() bool { return p.agentHeartbeat().Impaired })
		if h := p.agentHeartbeat(); h.Detail == "" {
			t.Errorf("heartbeat is %+v", h)
		}
		await.That(t, "the lease is lost", func() bool { return !p.holds() })
		r.fallSilent(t, node)
		before := r.mark(t)
		p.say(partly([]string{impairedWord, "NetworkReady=False/Broken", "StorageReady=True/OK"}))
		r.awaitSaid(t, node, impairedWord+" NetworkReady=Unknown/AgentSilent StorageReady=Unknown/AgentSilent")
		await.That(t, "the agent says so of itself", func() bool { return p.status() == "not published: the lease cannot be renewed" })

		// The controller has the last word, and what else the agent finds waits.
		r.setCondition(t, node, "fettle.dev/AgentReady", "Unknown")
		p.say(partly([]string{impairedWord, "NetworkReady=True/OK", "StorageReady=False/Full"}))
		failing := g.count()
		await.That(t, "some beats fail", func() bool { return g.count() > failing+5 })
		if got := said(r.node(t, node)); got != "AgentReady=Unknown/Other NetworkReady=Unknown/AgentSilent StorageReady=Unknown/AgentSilent" {
			t.Errorf("node says %s", got)
		}
		if writes := r.requests(t, before, p.version).Writes().Counts(); writes["patch nodes/status"] != 1 || writes["patch hosts/status"] != 0 {
			t.Errorf("writes while the lease is impaired: %v", writes)
		}

		g.set(nil)
		await.That(t, "the lease is held", p.holds)
		p.say(partly([]string{"AgentReady=True/OK", "NetworkReady=True/OK", "StorageReady=False/Full"}))
		r.awaitSaid(t, node, "AgentReady=True/OK NetworkReady=True/OK StorageReady=False/Full")
		await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	}
}

// waitsWhenItIsThrottled : the API server asks for a pause with every answer, for a while.
func waitsWhenItIsThrottled(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	g, kubeconfig := r.gated(t)
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })

	asked := time.Now()
	g.set(all(aboutStatus, fault{status: http.StatusTooManyRequests, retryAfter: 3}))
	p.say(finding("Broken"))
	await.That(t, "three tries are throttled", func() bool { return g.count() >= 3 })
	if took := time.Since(asked); took < 6*time.Second {
		t.Errorf("three tries in %s, though each was asked to wait 3 s", took)
	}
	if got := said(r.node(t, node)); got != allWell {
		t.Errorf("node says %s", got)
	}
	g.set(nil)
	r.awaitSaid(t, node, netBad)

	g.set(all(aboutLeases, fault{status: http.StatusTooManyRequests, retryAfter: 1}))
	await.That(t, "beats are throttled", func() bool { return g.count() >= 3 })
	g.set(nil)
	beat := r.lease(t, node).Spec.RenewTime.Time
	await.That(t, "beats are stored", func() bool {
		return p.heartState() == heartbeat.Holding && r.lease(t, node).Spec.RenewTime.After(beat)
	})
	if v := p.view(); v.Calls["heartbeat"].Throttled == 0 || v.Calls["report"].Throttled == 0 || v.Beats.Stored == 0 {
		t.Errorf("view is %+v", v)
	}
}

// livesWithASlowServer : answers that come just in time cost nothing, and those that come too late are got over.
func livesWithASlowServer(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	g, kubeconfig := r.gated(t)
	everything := func(*http.Request) bool { return true }
	g.set(all(everything, fault{delay: 600 * time.Millisecond})) // a beat may take 1 s
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
	for range 2 {
		beat := r.lease(t, node).Spec.RenewTime.Time
		await.That(t, "beats go on", func() bool { return r.lease(t, node).Spec.RenewTime.After(beat) })
	}

	g.set(all(everything, fault{delay: 1200 * time.Millisecond}))
	await.That(t, "beats fail", func() bool { return p.heartState() == heartbeat.Failing })
	p.say(finding(""))
	g.set(nil)
	await.That(t, "the lease is held", func() bool { return p.heartState() == heartbeat.Holding && p.holds() })
	r.awaitSaid(t, node, allWell)
}

// getsOverALongOutage : several lease durations without an API server. What happened meanwhile is said once, as it is in
// the end.
func getsOverALongOutage(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	path, kubeconfig := r.relayed(t)
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })

	before := r.mark(t)
	path.Cut(true)
	away := time.Now()
	for i := 0; time.Since(away) < 3*beats.LeaseDuration; i++ {
		reason := []string{"One", "", "Two"}[i%3]
		p.say(finding(reason))
		network(p, reason)
		time.Sleep(beats.LeaseDuration / 4)
	}
	if p.agentHeartbeat().Impaired {
		t.Error("an API server that is away was taken for a fault of the lease")
	}
	r.fallSilent(t, node)
	p.say(finding("Broken"))
	network(p, "Broken")
	path.Cut(false)
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	await.That(t, "one event tells of it", func() bool { return p.view().Events.Sent > 0 })
	if got := r.events(t, node); len(got) != 1 || got[0].Reason != "Broken" {
		t.Errorf("events are %+v", got)
	}
	if writes := r.requests(t, before, p.version).Writes().Counts(); writes["patch nodes/status"] != 1 || writes["patch hosts/status"] != 1 {
		t.Errorf("writes after the outage: %v", writes)
	}
}
