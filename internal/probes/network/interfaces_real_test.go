package network

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

func interfaces(o InterfacesOptions) probes.Watcher {
	return Interfaces.Build(probes.Env{}, &o).(probes.Watcher)
}

var asShipped = *Interfaces.NewOptions().(*InterfacesOptions)

func TestNamespaceWithoutAnything(t *testing.T) {
	s := newSpace(t)
	f := s.follow(interfaces(asShipped))
	f.await(health.Fatal, LoopbackDown, "lo is down")
	s.up("lo")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback")
	s.delAddress("lo", "127.0.0.1/8")
	f.await(health.Fatal, LoopbackDown, "lo has no 127.0.0.1")
	s.addAddress("lo", "127.0.0.1/8")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback")
}

// What follows from every fault is seen by the kernel's messages alone.
func TestInterfaceWithTheDefaultRoute(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	f := s.follow(interfaces(asShipped))
	f.await(health.OK, health.ReasonOK, "in operation: the loopback")
	s.addDefault("up0", "10.9.0.1")
	well := func() {
		t.Helper()
		f.await(health.OK, health.ReasonOK, "in operation: the loopback, up0")
	}
	well()

	s.down("far0")
	f.await(health.Fatal, InterfaceNoCarrier, "up0 has no carrier: what it rests on is down")
	s.up("far0")
	well()

	s.delAddress("up0", "10.9.0.2/24") // takes the route along
	f.await(health.Fatal, InterfaceNoAddress, "up0 has no address")
	s.addAddress("up0", "10.9.0.2/24")
	well()

	s.addDefault("up0", "10.9.0.1")
	s.down("up0") // takes the route along
	f.await(health.Fatal, InterfaceDown, "up0 is switched off (administratively down)")
	s.up("up0")
	well()

	s.must(netlink.LinkDel(s.link("up0")))
	f.await(health.Fatal, InterfaceMissing, "the interface up0, which had a default route, is gone")
	s.cable("up0", "far0")
	s.addAddress("up0", "10.9.0.2/24")
	well()
}

func TestOneOfTwoInterfacesWithADefaultRoute(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	for _, end := range []struct{ name, far, address, gateway string }{{"up0", "far0", "10.9.0.2/24", "10.9.0.1"}, {"up1", "far1", "fd00:9::2/64", "fd00:9::1"}} {
		s.cable(end.name, end.far)
		s.addAddress(end.name, end.address)
		s.addDefault(end.name, end.gateway)
	}
	f := s.follow(interfaces(asShipped))
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, up0, up1")
	s.down("far0")
	f.await(health.Degraded, InterfaceRedundancyLost, "up0 has no carrier: what it rests on is down")
	s.down("far1")
	f.await(health.Fatal, InterfaceNoCarrier, "up0 has no carrier: what it rests on is down; up1 has no carrier: what it rests on is down")
	s.up("far0", "far1")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, up0, up1")
}

func TestConfiguredInterfaces(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	o := asShipped
	o.Interfaces = []string{"rdma[0-9]", "tun7"}
	f := s.follow(interfaces(o))
	f.await(health.Fatal, InterfaceMissing, "there is no interface rdma[0-9]; there is no interface tun7")
	s.cable("rdma0", "far0")
	f.await(health.Fatal, InterfaceNoAddress, "rdma0 has no address; there is no interface tun7")
	s.addAddress("rdma0", "10.9.1.2/24")
	f.await(health.Fatal, InterfaceMissing, "there is no interface tun7")

	// A driver of the kind that keeps no operational state says "unknown", and its carrier counts.
	s.must(netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun7"}, Mode: netlink.TUNTAP_MODE_TUN, NonPersist: false}))
	s.addAddress("tun7", "10.9.2.2/32")
	s.up("tun7")
	f.await(health.Fatal, InterfaceNoCarrier, "tun7 has no carrier")
	s.must(netlink.LinkDel(s.link("tun7")))
	s.must(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "tun7"}}))
	s.addAddress("tun7", "10.9.2.2/32")
	s.up("tun7")
	if got := s.link("tun7").Attrs().OperState; got != netlink.OperUnknown {
		t.Fatalf("the operational state is %s", got)
	}
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, rdma[0-9], tun7")
}

// A machine that speaks BGP over unnumbered links has its address on the loopback.
func TestUnnumberedInterface(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	o := asShipped
	o.Interfaces = []string{"up0"}
	s.cable("up0", "far0")
	f := s.follow(interfaces(o))
	f.await(health.Fatal, InterfaceNoAddress, "up0 has no address")
	s.addAddress("up0", "fe80::9/64")
	s.addAddress("lo", "10.99.0.1/32")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, up0")
}
