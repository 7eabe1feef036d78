package agent

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/relay"
)

type healthCondition = health.Condition

// getsPastADeadConnection : the path to the API server swallows everything that is sent over connections that exist,
// without closing them, as a failed-over firewall does. The lease must not be lost by it.
func getsPastADeadConnection(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	path, kubeconfig := r.relayed(t)
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)

	path.Swallow()
	// HTTP/2 by itself would give the connection up after 45 s.
	last, longest := r.lease(t, node).Spec.RenewTime.Time, time.Duration(0)
	for beat := range 4 {
		await.That(t, fmt.Sprintf("beat %d", beat), func() bool {
			now := r.lease(t, node).Spec.RenewTime.Time
			longest = max(longest, now.Sub(last))
			moved := now.After(last)
			last = now
			return moved
		})
	}
	if longest > 30*time.Second {
		t.Errorf("longest gap between beats was %s, state is %s", longest, p.heartState())
	}
	p.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
}

// writesNothingAfterAnOutage : an outage longer than the lease duration has the node read and compared, and as nobody
// wrote to it meanwhile, a thousand agents that come back at once write their leases and nothing else.
func writesNothingAfterAnOutage(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	path, kubeconfig := r.relayed(t)
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding("Broken"))
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Unhealthy", func() bool { return r.hostHealth(t, node) == "Unhealthy" })

	before := r.mark(t)
	path.Cut(true)
	await.That(t, "the lease is lost", func() bool { return !p.holds() })
	path.Cut(false)
	await.That(t, "the lease is held", p.holds)
	time.Sleep(3 * time.Second)
	requests := r.requests(t, before, p.version)
	if n := len(requests.Writes()); n == 0 || requests.Writes().Counts()["update leases"] != n || requests.Counts()["get nodes"] == 0 {
		t.Errorf("requests after an outage in which nothing had changed:\n%s", requests)
	}
}

// relayed is a kubeconfig that leads through a relay.
func (r *rig) relayed(t *testing.T) (*relay.Relay, string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.agentKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters["fettle"].Server)
	if err != nil {
		t.Fatal(err)
	}
	path := relay.ForTest(t, server.Host)
	config.Clusters["fettle"].Server = "https://" + path.Address()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return path, kubeconfig
}

func (p *part) holds() bool {
	return p.view().Holds
}

// TestAnAPIServerThatIsAway : at the start and later. What was decided meanwhile is said once when it is back.
func TestAnAPIServerThatIsAway(t *testing.T) {
	r := newRig(t)
	const node = "n"
	r.createHost(t, node, r.createNode(t, node).UID)
	r.StopAPIServer()
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	time.Sleep(2 * time.Second)
	if s := p.status(); s != "not published: no API server yet" {
		t.Errorf("status is %q", s)
	}
	if err := r.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitSaid(t, node, allWell)
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })

	away := r.mark(t)
	r.StopAPIServer()
	for _, reason := range []string{"One", "Two", "", "Three", "Broken"} {
		p.say(finding(reason))
		time.Sleep(beats.LeaseDuration / 4)
	}
	await.That(t, "the heartbeat fails", func() bool { return p.heartState() == heartbeat.Failing })
	if err := r.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitSaid(t, node, netBad)
	await.That(t, "the host says Unhealthy", func() bool { return r.hostHealth(t, node) == "Unhealthy" })
	time.Sleep(3 * time.Second)
	if writes := r.requests(t, away, p.version).Writes().Counts(); writes["patch nodes/status"] != 1 || writes["patch hosts/status"] != 1 {
		t.Errorf("writes after the API server was back: %v", writes)
	}
}
