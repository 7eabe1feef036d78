package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/test/await"
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

	path.swallow()
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
	path.cut(true)
	await.That(t, "the lease is lost", func() bool { return !p.holds() })
	path.cut(false)
	await.That(t, "the lease is held", p.holds)
	time.Sleep(3 * time.Second)
	requests := r.requests(t, before, p.version)
	if n := len(requests.Writes()); n == 0 || requests.Writes().Counts()["update leases"] != n || requests.Counts()["get nodes"] == 0 {
		t.Errorf("requests after an outage in which nothing had changed:\n%s", requests)
	}
}

// relayed is a kubeconfig that leads through a relay.
func (r *rig) relayed(t *testing.T) (*relay, string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.agentKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters["fettle"].Server)
	if err != nil {
		t.Fatal(err)
	}
	path := newRelay(t, server.Host)
	config.Clusters["fettle"].Server = "https://" + path.listener.Addr().String()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return path, kubeconfig
}

func (p *part) holds() bool {
	return p.view().Holds
}

// relay passes TCP connections on, until it is told to swallow what those it has carry.
type relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	valve *valve // of connections that are made now
	conns []net.Conn
	isCut bool
}

type valve struct{ shut chan struct{} }

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, target: target, valve: &valve{shut: make(chan struct{})}}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.pass(conn)
		}
	}()
	return r
}

func (r *relay) pass(in net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := net.Dial("tcp", r.target)
	if err != nil {
		in.Close()
		return
	}
	if r.isCut {
		in.Close()
		out.Close()
		return
	}
	r.conns = append(r.conns, in, out)
	v := r.valve
	go v.copy(out, in)
	go v.copy(in, out)
}

func (v *valve) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-v.shut:
			if err == nil {
				continue // swallowed
			}
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				from.Close()
			}
			to.Close()
			return
		}
	}
}

// cut closes all connections and those that are made until it is mended.
func (r *relay) cut(isCut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = isCut
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// swallow has what is sent over the connections there are go nowhere.
func (r *relay) swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.valve.shut)
	r.valve = &valve{shut: make(chan struct{})}
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
