package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// link is what the checks need of a network interface.
type link struct {
	index int
	name  string
	// kind is that of the kernel's driver, e.g. "bond" or "veth"; "device" for hardware.
	kind string
	// master is the index of the bond or bridge it is a member of, parent that of the interface it rests on (a VLAN's, a
	// macvlan's); 0: none.
	master, parent int
	loopback       bool
	// up is what an administrator asked for (IFF_UP), carrier whether the driver sees the other end (IFF_LOWER_UP).
	up, carrier bool
	// oper is the operational state of RFC 2863. Drivers that do not keep it say "unknown" for good.
	oper netlink.LinkOperState
	// memberDown : the bond that it is a member of does not use it.
	memberDown bool
	// addresses that the kernel would use.
	addresses []netip.Prefix
}

// works says why nothing can be sent through the interface; an empty reason: it can.
//
// The states are those of RFC 2863 as Linux keeps them (Documentation/networking/operstates.rst): "unknown" is what a
// driver says that never told; such an interface counts as up while its driver claims a carrier.
func (l link) works() (reason, words string) {
	switch {
	case !l.up:
		return InterfaceDown, l.name + " is switched off (administratively down)"
	case l.oper == netlink.OperLowerLayerDown:
		return InterfaceNoCarrier, l.name + " has no carrier: what it rests on is down"
	case l.oper == netlink.OperDown:
		return InterfaceNoCarrier, l.name + " has no carrier"
	case l.oper == netlink.OperDormant:
		return InterfaceDown, l.name + " waits to be let into the network (dormant)"
	case l.oper == netlink.OperTesting, l.oper == netlink.OperNotPresent:
		return InterfaceDown, fmt.Sprintf("%s is not in operation (%s)", l.name, l.oper)
	case !l.carrier:
		return InterfaceNoCarrier, l.name + " has no carrier"
	}
	return "", ""
}

// global says whether the interface has an address that reaches beyond its wire.
func (l link) global() bool {
	return slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool {
		return p.Addr().IsGlobalUnicast() // also private ones; neither loopback nor link-local
	})
}

// reads is how often a dump that a change cut short is tried again.
const reads = 3

// readLinks lists the interfaces of this process's network namespace with their addresses, by two dumps over rtnetlink.
func readLinks() ([]link, error) {
	var found []netlink.Link
	var addresses []netlink.Addr
	err := whole(func() (err error) {
		if found, err = netlink.LinkList(); err != nil {
			return err
		}
		addresses, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	links := make([]link, 0, len(found))
	for _, f := range found {
		links = append(links, linkFrom(f))
	}
	for _, a := range addresses {
		if at := slices.IndexFunc(links, func(l link) bool { return l.index == a.LinkIndex }); at >= 0 && a.Flags&unix.IFA_F_DADFAILED == 0 {
			if p, ok := prefixFrom(a); ok {
				links[at].addresses = append(links[at].addresses, p)
			}
		}
	}
	return links, nil
}

// whole repeats a dump that changes made incomplete, which may lack an interface that is there.
func whole(dump func() error) (err error) {
	for range reads {
		if err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// rests are the kinds of interfaces that rest on another one of the same machine. A veth's parent is its other end, which
// may be in another namespace.
var rests = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}

func linkFrom(l netlink.Link) link {
	a := l.Attrs()
	made := link{
		index: a.Index, name: a.Name, kind: l.Type(), master: a.MasterIndex,
		loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
		up:       a.RawFlags&unix.IFF_UP != 0,
		carrier:  a.RawFlags&unix.IFF_LOWER_UP != 0,
		oper:     a.OperState,
	}
	if slices.Contains(rests, made.kind) {
		made.parent = a.ParentIndex
	}
	// A bond that monitors nothing (miimon 0, no ARP) takes every member for well, hence the carrier.
	if slave, ok := a.Slave.(*netlink.BondSlave); ok {
		made.memberDown = slave.MiiStatus != netlink.BondLinkUp || !made.up || !made.carrier
	}
	return made
}

func prefixFrom(a netlink.Addr) (netip.Prefix, bool) {
	if a.IPNet == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits), true
}
