package network

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

func (s space) defaultRoute(withKubelet bool, o DefaultRouteOptions) probes.Watcher {
	return DefaultRoute.Build(probes.Env{Host: s.machine(withKubelet)}, &o).(probes.Watcher)
}

func TestDefaultRouteComesAndGoes(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	f := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "any"}))
	missing := func() { t.Helper(); f.await(health.Fatal, DefaultRouteMissing, "no default route for IPv4 or IPv6") }
	well := func() { t.Helper(); f.await(health.OK, health.ReasonOK, "default routes: IPv4 through up0") }
	missing()
	s.addDefault("up0", "10.9.0.1")
	well()
	s.delDefault("up0", "10.9.0.1")
	missing()

	s.addDefault("up0", "10.9.0.1")
	well()
	s.down("far0")
	f.await(health.Fatal, DefaultRouteDown, "no default route for IPv4 or IPv6 works: up0 has no carrier: what it rests on is down")
	s.up("far0")
	well()

	s.delAddress("up0", "10.9.0.2/24") // takes the route along, without a message of its own
	missing()
	s.addAddress("up0", "10.9.0.2/24")
	s.addDefault("up0", "10.9.0.1")
	well()
	s.must(netlink.LinkDel(s.link("up0")))
	missing()
}

func TestMachineOfIPv6Only(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.addAddress("up0", "fd00:9::2/64")
	s.addDefault("up0", "fd00:9::1")
	either := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "any"}))
	either.await(health.OK, health.ReasonOK, "default routes: IPv6 through up0")
	six := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "ipv6"}))
	six.await(health.OK, health.ReasonOK, "default routes: IPv6 through up0")
	four := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "ipv4"}))
	four.await(health.Fatal, DefaultRouteMissing, "no default route for IPv4")
	both := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "both"}))
	both.await(health.Fatal, DefaultRouteMissing, "no default route for IPv4")

	s.addAddress("up0", "10.9.0.2/24")
	s.addDefault("up0", "10.9.0.1")
	both.await(health.OK, health.ReasonOK, "default routes: IPv4 through up0, IPv6 through up0")
	s.delDefault("up0", "fd00:9::1")
	both.await(health.Fatal, DefaultRouteMissing, "no default route for IPv6")
	either.await(health.OK, health.ReasonOK, "default routes: IPv4 through up0")
}

func TestRoutesThatLeadNowhere(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	s.must(err)
	s.must(netlink.RouteAdd(&netlink.Route{Dst: everything, Type: 7})) // RTN_UNREACHABLE
	_, half, err := net.ParseCIDR("0.0.0.0/1")
	s.must(err)
	s.must(netlink.RouteAdd(&netlink.Route{Dst: half, Gw: net.ParseIP("10.9.0.1")}))
	s.must(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.9.0.1"), Table: 100}))
	f := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "any"}))
	f.await(health.Fatal, DefaultRouteMissing, "no default route for IPv4 or IPv6")
}

// One route with a hop through each of two interfaces, of which one loses its carrier.
func TestRouteWithTwoHops(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.cable("up1", "far1")
	s.addAddress("up0", "10.9.0.2/24")
	s.addAddress("up1", "10.9.1.2/24")
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	s.must(err)
	s.must(netlink.RouteAdd(&netlink.Route{Dst: everything, MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: s.link("up0").Attrs().Index, Gw: net.ParseIP("10.9.0.1")},
		{LinkIndex: s.link("up1").Attrs().Index, Gw: net.ParseIP("10.9.1.1")},
	}}))
	f := s.follow(s.defaultRoute(true, DefaultRouteOptions{Families: "any"}))
	f.await(health.OK, health.ReasonOK, "default routes: IPv4 through up0, IPv4 through up1")
	s.down("far1")
	f.await(health.OK, health.ReasonOK, "default routes: IPv4 through up0")
	s.down("far0")
	f.await(health.Fatal, DefaultRouteDown, "no default route for IPv4 or IPv6 works: up0 has no carrier: what it rests on is down; up1 has no carrier: what it rests on is down")
}

// Nobody answers for the gateway: the kernel finds out when something is sent, and the check from the kernel.
func TestGatewayThatDoesNotAnswer(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	s.addDefault("up0", "10.9.0.1")
	p := s.defaultRoute(true, DefaultRouteOptions{Families: "any"})
	expectResult(t, p.Run(t.Context()), health.OK, health.ReasonOK, "default routes: IPv4 through up0")
	want := health.Result{Verdict: health.Degraded, Reason: GatewayUnreachable, Message: "the gateway 10.9.0.1 of up0 does not answer"}
	conn, err := net.Dial("udp", "192.0.2.1:9")
	s.must(err)
	defer conn.Close()
	for deadline := time.Now().Add(patience); p.Run(t.Context()) != want; time.Sleep(50 * time.Millisecond) {
		_, _ = conn.Write([]byte("x")) // it is told "no route to host" once the kernel knows
		if time.Now().After(deadline) {
			t.Fatalf("it says %+v", p.Run(t.Context()))
		}
	}
	// The gateway is back: its entry is well, as a reply would make it.
	hardware, err := net.ParseMAC("02:00:00:00:00:01")
	s.must(err)
	s.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: s.link("up0").Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_REACHABLE, IP: net.ParseIP("10.9.0.1"), HardwareAddr: hardware}))
	expectResult(t, p.Run(t.Context()), health.OK, health.ReasonOK, "default routes: IPv4 through up0")
}

func TestMachineThatNeverHadADefaultRoute(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	bare := s.defaultRoute(false, DefaultRouteOptions{Families: "any"})
	expectResult(t, bare.Run(t.Context()), health.NotApplicable, health.ReasonNotApplicable, "there is no default route, and /var/lib/kubelet does not exist")
	required := s.defaultRoute(false, DefaultRouteOptions{Families: "any", Required: true})
	expectResult(t, required.Run(t.Context()), health.Fatal, DefaultRouteMissing, "no default route for IPv4 or IPv6")

	// Once it had one, it needs one.
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	s.addDefault("up0", "10.9.0.1")
	expectResult(t, bare.Run(t.Context()), health.OK, health.ReasonOK, "default routes: IPv4 through up0")
	s.delDefault("up0", "10.9.0.1")
	expectResult(t, bare.Run(t.Context()), health.Fatal, DefaultRouteMissing, "no default route for IPv4 or IPv6")
}

func expectResult(t *testing.T, got health.Result, verdict health.Verdict, reason, message string) {
	t.Helper()
	if want := (health.Result{Verdict: verdict, Reason: reason, Message: message}); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
