package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// readLinks lists interfaces of this process's network namespace with their addresses, by two dumps over rtnetlink. It
// leaves out the ends of pods' cables (veth), most of what a machine has, but for those that are wanted.
func readLinks(wanted func(index int, name string) bool) (links []link, err error) {
	err = whole(func() error {
		links = links[:0]
		if err := dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, func(message []byte) error {
			if index, name, pods := identify(message); pods && !wanted(index, name) {
				return nil
			}
			l, err := netlink.LinkDeserialize(nil, message)
			if err == nil {
				links = append(links, linkFrom(l))
			}
			return err
		}, nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics))); err != nil {
			return err
		}
		return dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, func(message []byte) error {
			index := int(nl.DeserializeIfAddrmsg(message).Index)
			if at := slices.IndexFunc(links, func(l link) bool { return l.index == index }); at >= 0 {
				if p, ok := addressFrom(message); ok {
					links[at].addresses = append(links[at].addresses, p)
				}
			}
			return nil
		}, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	})
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	return links, nil
}

// skipStatistics is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: counters are half of each message.
const skipStatistics = 1 << 3

// identify reads of a message about an interface what tells whether to read the rest. One of a pod is a veth that is no
// member of a bond.
func identify(message []byte) (index int, name string, pods bool) {
	var kind, memberOf string
	for k, v := range attributes(message[unix.SizeofIfInfomsg:]) {
		switch k {
		case unix.IFLA_IFNAME:
			name = unix.ByteSliceToString(v)
		case unix.IFLA_LINKINFO:
			for k, v := range attributes(v) {
				switch k {
				case nl.IFLA_INFO_KIND:
					kind = unix.ByteSliceToString(v)
				case nl.IFLA_INFO_SLAVE_KIND:
					memberOf = unix.ByteSliceToString(v)
				}
			}
		}
	}
	return int(nl.DeserializeIfInfomsg(message).Index), name, kind == "veth" && memberOf != "bond"
}

// attributes walks over netlink attributes without copying them; see netlink(7).
func attributes(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.SizeofNlAttr {
			length, kind := int(binary.NativeEndian.Uint16(data)), binary.NativeEndian.Uint16(data[2:])
			if length < unix.SizeofNlAttr || length > len(data) {
				return
			}
			if !yield(kind&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), data[unix.SizeofNlAttr:length]) {
				return
			}
			data = data[min((length+3)&^3, len(data)):]
		}
	}
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

// addressFrom reads an address that the kernel would use: not one that turned out to be somebody else's. IPv4 has its
// own address in IFA_LOCAL, and in IFA_ADDRESS that of the other end; IPv6 has only the latter, its own.
func addressFrom(message []byte) (netip.Prefix, bool) {
	header := nl.DeserializeIfAddrmsg(message)
	flags, local, other := uint32(header.Flags), netip.Addr{}, netip.Addr{}
	for k, v := range attributes(message[unix.SizeofIfAddrmsg:]) {
		switch k {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS:
			other, _ = netip.AddrFromSlice(v)
		case unix.IFA_FLAGS:
			if len(v) == 4 {
				flags = binary.NativeEndian.Uint32(v)
			}
		}
	}
	if !local.IsValid() {
		local = other
	}
	p := netip.PrefixFrom(local, int(header.Prefixlen))
	return p, p.IsValid() && flags&unix.IFA_F_DADFAILED == 0
}
