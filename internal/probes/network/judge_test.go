package network

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fettle-dev/fettle/internal/health"
)

// lo and wired are interfaces in order.
func lo() link {
	return link{index: 1, name: "lo", kind: "device", loopback: true, up: true, carrier: true, oper: netlink.OperUnknown, addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
}

func wired(index int, name string, change ...func(*link)) link {
	l := link{index: index, name: name, kind: "device", up: true, carrier: true, oper: netlink.OperUp, addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}}
	for _, c := range change {
		c(&l)
	}
	return l
}

func pulled(l *link) { l.carrier, l.oper = false, netlink.OperDown }

func bare(l *link) { l.addresses = nil }

func in(master int) func(*link) { return func(l *link) { l.master, l.addresses = master, nil } }

func of(kind string) func(*link) { return func(l *link) { l.kind = kind } }

func on(parent int) func(*link) { return func(l *link) { l.kind, l.parent = "vlan", parent } }

func unused(l *link) { l.memberDown = true }

func having(addresses ...string) func(*link) {
	return func(l *link) {
		l.addresses = nil
		for _, a := range addresses {
			l.addresses = append(l.addresses, netip.MustParsePrefix(a))
		}
	}
}

func TestJudgeInterfaces(t *testing.T) {
	state := func(s netlink.LinkOperState) func(*link) { return func(l *link) { l.oper = s } }
	for _, tc := range []struct {
		name       string
		links      []link
		uplinks    string
		configured string
		noAddress  bool
		verdict    health.Verdict
		reason     string
		says       string
	}{
		{name: "all is well", links: []link{lo(), wired(2, "eth0")}, uplinks: "eth0", verdict: health.OK, reason: "OK", says: "in operation: the loopback, eth0"},
		{name: "an interface named twice is told once", links: []link{lo(), wired(2, "eth0")}, uplinks: "eth0", configured: "eth0", verdict: health.OK, reason: "OK", says: "in operation: the loopback, eth0"},
		{name: "nobody needs a pod's interface", links: []link{lo(), wired(2, "eth0"), wired(3, "veth1", pulled, bare)}, uplinks: "eth0", verdict: health.OK, reason: "OK"},
		{name: "no interface at all", verdict: health.Fatal, reason: LoopbackDown, says: "there is no loopback interface"},
		{name: "a loopback without its address", links: []link{func() link { l := lo(); l.addresses = nil; return l }()}, verdict: health.Fatal, reason: LoopbackDown, says: "lo has no 127.0.0.1"},
		{name: "a loopback with a further address", links: []link{func() link { l := lo(); having("10.99.0.1/32", "127.0.0.1/32")(&l); return l }()}, verdict: health.OK, reason: "OK"},

		{name: "unknown, with a carrier, as dummies are", links: []link{lo(), wired(2, "d0", state(netlink.OperUnknown))}, uplinks: "d0", verdict: health.OK, reason: "OK"},
		{name: "unknown, without a carrier", links: []link{lo(), wired(2, "d0", state(netlink.OperUnknown), func(l *link) { l.carrier = false })}, uplinks: "d0", verdict: health.Fatal, reason: InterfaceNoCarrier, says: "d0 has no carrier"},
		{name: "dormant", links: []link{lo(), wired(2, "eth0", state(netlink.OperDormant))}, uplinks: "eth0", verdict: health.Fatal, reason: InterfaceDown, says: "eth0 waits to be let into the network (dormant)"},
		{name: "testing", links: []link{lo(), wired(2, "eth0", state(netlink.OperTesting))}, uplinks: "eth0", verdict: health.Fatal, reason: InterfaceDown, says: "eth0 is not in operation (testing)"},
		{name: "not present", links: []link{lo(), wired(2, "eth0", state(netlink.OperNotPresent))}, uplinks: "eth0", verdict: health.Fatal, reason: InterfaceDown, says: "eth0 is not in operation (not-present)"},
		{name: "up, says the operational state, but switched off", links: []link{lo(), wired(2, "eth0", func(l *link) { l.up = false })}, uplinks: "eth0", verdict: health.Fatal, reason: InterfaceDown},

		{name: "only link-local addresses", links: []link{lo(), wired(2, "eth0", having("fe80::1/64", "169.254.3.4/16"))}, uplinks: "eth0", verdict: health.Fatal, reason: InterfaceNoAddress, says: "eth0 has no address"},
		{name: "only IPv6", links: []link{lo(), wired(2, "eth0", having("fe80::1/64", "fd00::1/64"))}, uplinks: "eth0", verdict: health.OK, reason: "OK"},
		{name: "addresses are not looked at", links: []link{lo(), wired(2, "eth0", bare)}, uplinks: "eth0", noAddress: true, verdict: health.OK, reason: "OK"},
		{name: "a member of a bridge needs none", links: []link{lo(), wired(2, "eth0", in(3)), wired(3, "br0", of("bridge"))}, uplinks: "br0", configured: "eth0", verdict: health.OK, reason: "OK"},

		{name: "one of two ways out", links: []link{lo(), wired(2, "eth0", pulled), wired(3, "eth1")}, uplinks: "eth0 eth1", verdict: health.Degraded, reason: InterfaceRedundancyLost, says: "eth0 has no carrier"},
		{name: "both", links: []link{lo(), wired(2, "eth0", pulled), wired(3, "eth1", bare)}, uplinks: "eth0 eth1", verdict: health.Fatal, reason: InterfaceNoCarrier, says: "eth0 has no carrier; eth1 has no address"},
		{name: "one of two, which is configured too", links: []link{lo(), wired(2, "eth0", pulled), wired(3, "eth1")}, uplinks: "eth0 eth1", configured: "eth0", verdict: health.Fatal, reason: InterfaceNoCarrier, says: "eth0 has no carrier"},
		{name: "the worst comes first", links: []link{lo(), wired(2, "bond0", of("bond")), wired(3, "eth0", in(2), unused), wired(4, "eth1", in(2))}, uplinks: "bond0", configured: "tun*", verdict: health.Fatal, reason: InterfaceMissing, says: "there is no interface tun*; bond0: its member eth0 is down"},

		{name: "a bond with all its members", links: []link{lo(), wired(2, "bond0", of("bond")), wired(3, "eth0", in(2)), wired(4, "eth1", in(2))}, uplinks: "bond0", verdict: health.OK, reason: "OK"},
		{name: "a bond with a member down", links: []link{lo(), wired(2, "bond0", of("bond")), wired(3, "eth0", in(2)), wired(4, "eth1", in(2), unused)}, uplinks: "bond0", verdict: health.Degraded, reason: BondDegraded, says: "bond0: its member eth1 is down"},
		{name: "a VLAN on it", links: []link{lo(), wired(2, "bond0", of("bond"), bare), wired(3, "eth0", in(2), unused), wired(4, "vlan7", on(2))}, uplinks: "vlan7", verdict: health.Degraded, reason: BondDegraded, says: "bond0: its member eth0 is down"},
		{name: "a bridge over the VLAN", links: []link{lo(), wired(2, "bond0", of("bond"), bare), wired(3, "eth0", in(2), unused), wired(4, "vlan7", on(2), in(5)), wired(5, "br0", of("bridge"))}, uplinks: "br0", verdict: health.Degraded, reason: BondDegraded, says: "bond0: its member eth0 is down"},
		{name: "a bond that nobody needs", links: []link{lo(), wired(2, "bond0", of("bond")), wired(3, "eth0", in(2), unused), wired(4, "eth1")}, uplinks: "eth1", verdict: health.OK, reason: "OK"},
		{name: "interfaces that rest on each other in a circle", links: []link{lo(), wired(2, "a", on(3)), wired(3, "b", on(2))}, uplinks: "a", verdict: health.OK, reason: "OK"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := InterfacesOptions{Interfaces: strings.Fields(tc.configured), Addresses: !tc.noAddress}
			got := o.judge(tc.links, strings.Fields(tc.uplinks))
			if got.Verdict != tc.verdict || got.Reason != tc.reason || (tc.says != "" && got.Message != tc.says) || got.Message != health.Normalise(got.Message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestUplinksAreRemembered(t *testing.T) {
	links := []link{lo(), wired(2, "eth1"), wired(3, "eth0")}
	through := func(indexes ...int) (routes []defaultRoute) {
		for _, i := range indexes {
			routes = append(routes, defaultRoute{family: ipv4, link: i})
		}
		return routes
	}
	for _, tc := range []struct {
		name   string
		before []string
		routes []defaultRoute
		want   []string
	}{
		{name: "none so far"},
		{name: "sorted, each once", routes: through(2, 3, 2), want: []string{"eth0", "eth1"}},
		{name: "the last one lost its route", before: []string{"eth0"}, want: []string{"eth0"}},
		{name: "another has taken over", before: []string{"eth0"}, routes: through(2), want: []string{"eth1"}},
		{name: "a route whose interface is gone meanwhile", before: []string{"eth0"}, routes: through(9), want: []string{"eth0"}},
	} {
		if got := uplinks(tc.before, links, tc.routes); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestJudgeDefaultRoute(t *testing.T) {
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1")
	way4 := func(l link) way {
		return way{defaultRoute: defaultRoute{family: ipv4, link: l.index, gateway: four}, through: l}
	}
	way6 := func(l link) way {
		return way{defaultRoute: defaultRoute{family: ipv6, link: l.index, gateway: six}, through: l}
	}
	silent := func(w way) way { w.silent = true; return w }
	dead := func(w way) way { w.dead = true; return w }
	eth0, eth1 := wired(2, "eth0"), wired(3, "eth1")
	for _, tc := range []struct {
		name     string
		families string
		ways     []way
		verdict  health.Verdict
		reason   string
		says     string
	}{
		{name: "either: IPv4", families: "any", ways: []way{way4(eth0)}, verdict: health.OK, reason: "OK", says: "default routes: IPv4 through eth0"},
		{name: "either: IPv6", families: "any", ways: []way{way6(eth0)}, verdict: health.OK, reason: "OK", says: "default routes: IPv6 through eth0"},
		{name: "either: none", families: "any", verdict: health.Fatal, reason: DefaultRouteMissing, says: "no default route for IPv4 or IPv6"},
		{name: "IPv4: there is IPv6 only", families: "ipv4", ways: []way{way6(eth0)}, verdict: health.Fatal, reason: DefaultRouteMissing, says: "no default route for IPv4"},
		{name: "IPv6: there is IPv4 only", families: "ipv6", ways: []way{way4(eth0)}, verdict: health.Fatal, reason: DefaultRouteMissing, says: "no default route for IPv6"},
		{name: "both", families: "both", ways: []way{way4(eth0), way6(eth0)}, verdict: health.OK, reason: "OK"},
		{name: "both: IPv4 only", families: "both", ways: []way{way4(eth0)}, verdict: health.Fatal, reason: DefaultRouteMissing, says: "no default route for IPv6"},
		{name: "both: one is down", families: "both", ways: []way{way4(eth0), dead(way6(eth0))}, verdict: health.Fatal, reason: DefaultRouteDown, says: "no default route for IPv6 works: the kernel does not use the route through eth0"},
		{name: "its interface has no carrier", families: "any", ways: []way{way4(wired(2, "eth0", pulled))}, verdict: health.Fatal, reason: DefaultRouteDown, says: "no default route for IPv4 or IPv6 works: eth0 has no carrier"},
		{name: "either: one family's interface is down", families: "any", ways: []way{way4(wired(2, "eth0", pulled)), way6(eth1)}, verdict: health.OK, reason: "OK", says: "default routes: IPv6 through eth1"},
		{name: "two routes through one interface are told once", families: "any", ways: []way{way4(eth0), way4(eth0)}, verdict: health.OK, reason: "OK", says: "default routes: IPv4 through eth0"},
		{name: "a gateway that is silent", families: "any", ways: []way{silent(way4(eth0))}, verdict: health.Degraded, reason: GatewayUnreachable, says: "the gateway 10.0.0.1 of eth0 does not answer"},
		{name: "one of two gateways", families: "any", ways: []way{way4(eth0), silent(way6(eth1))}, verdict: health.Degraded, reason: GatewayUnreachable, says: "the gateway fe80::1 of eth1 does not answer"},
		{name: "the gateway of a route that is down says nothing more", families: "any", ways: []way{way4(eth0), silent(dead(way4(eth1)))}, verdict: health.OK, reason: "OK"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := DefaultRouteOptions{Families: tc.families}.judge(tc.ways)
			if got.Verdict != tc.verdict || got.Reason != tc.reason || (tc.says != "" && got.Message != tc.says) || got.Message != health.Normalise(got.Message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestPatternsAreChecked(t *testing.T) {
	for pattern, want := range map[string]int{"eth0": 0, "ens[0-9]f?": 0, "*": 0, "": 1, "ens[0-9": 1} {
		var faults int
		InterfacesOptions{Interfaces: []string{"lo", pattern}}.Validate(func(_, _ string, keys ...string) {
			faults++
			if !reflect.DeepEqual(keys, []string{"interfaces[1]"}) {
				t.Errorf("%q: keys %q", pattern, keys)
			}
		})
		if faults != want {
			t.Errorf("%q: %d faults", pattern, faults)
		}
	}
}
