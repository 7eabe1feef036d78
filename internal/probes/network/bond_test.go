package network

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/test/barekernel"
)

func TestMain(m *testing.M) { barekernel.Main(m) }

// A bond of two members, with a VLAN on it that carries the default route, loses one and gets it back.
func TestBondThatLosesAMember(t *testing.T) {
	if !barekernel.Inside() {
		barekernel.Run(t, "bonding", "veth", "8021q")
		return
	}
	s := newSpace(t)
	s.up("lo")
	s.cable("eth0", "far0")
	s.cable("eth1", "far1")
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode, bond.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 50
	s.must(netlink.LinkAdd(bond))
	for _, name := range []string{"eth0", "eth1"} {
		s.down(name) // a bond takes only such
		s.must(netlink.LinkSetMaster(s.link(name), s.link("bond0")))
	}
	s.up("bond0")
	s.must(netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "vlan7", ParentIndex: s.link("bond0").Attrs().Index}, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}))
	s.up("vlan7")
	s.addAddress("vlan7", "10.9.0.2/24")
	f := s.follow(interfaces(asShipped))
	f.await(health.OK, health.ReasonOK, "in operation: the loopback")
	s.addDefault("vlan7", "10.9.0.1")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, vlan7")

	s.down("far1")
	f.await(health.Degraded, BondDegraded, "bond0: its member eth1 is down")
	s.up("far1")
	f.await(health.OK, health.ReasonOK, "in operation: the loopback, vlan7")
	s.down("far0")
	f.await(health.Degraded, BondDegraded, "bond0: its member eth0 is down")
	s.down("far1")
	f.await(health.Fatal, InterfaceNoCarrier, "vlan7 has no carrier: what it rests on is down; bond0: its member eth0 is down; bond0: its member eth1 is down")
}
