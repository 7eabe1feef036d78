package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// family is an address family, e.g. unix.AF_INET.
type family int

const (
	ipv4 family = unix.AF_INET
	ipv6 family = unix.AF_INET6
)

func (f family) String() string {
	if f == ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// defaultRoute is one way out of the machine: a default route of the main table, or one hop of several that it has.
type defaultRoute struct {
	family family
	// link is the index of the interface it leads through.
	link int
	// gateway is not valid for a route to a point-to-point interface.
	gateway netip.Addr
	// dead : the kernel does not use it, since its interface is down or has no carrier.
	dead bool
}

// readDefaultRoutes lists the default routes of the main table, of both families. Routes of other tables, which rules
// may prefer, are not looked at; nor are those that only refuse (unreachable, blackhole, prohibit).
func readDefaultRoutes() ([]defaultRoute, error) {
	var routes []defaultRoute
	err := whole(func() error {
		routes = routes[:0]
		return dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, func(message []byte) error {
			routes = append(routes, defaultRoutesFrom(message)...)
			return nil
		}, &nl.RtMsg{}) // of every family
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

// defaultRoutesFrom reads a message about a route; it gives nothing for one that is no default route of the main table. A
// machine has a route for each pod, so that little is read of the others.
func defaultRoutesFrom(message []byte) []defaultRoute {
	if len(message) < unix.SizeofRtMsg {
		return nil
	}
	header := nl.DeserializeRtMsg(message)
	f := family(header.Family)
	if f != ipv4 && f != ipv6 || header.Dst_len != 0 || header.Table != unix.RT_TABLE_MAIN || header.Type != unix.RTN_UNICAST || header.Flags&unix.RTM_F_CLONED != 0 {
		return nil
	}
	only := defaultRoute{family: f, dead: header.Flags&unusable != 0}
	var several []defaultRoute
	for kind, value := range attributes(message[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_OIF:
			only.link = indexFrom(value)
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			only.gateway = gatewayFrom(kind, value)
		case unix.RTA_MULTIPATH:
			several = hops(only, value)
		}
	}
	if several != nil {
		return several
	}
	return []defaultRoute{only}
}

// unusable are the flags of a hop that the kernel passes over.
const unusable = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN

// hops reads the ways of a route that has several: struct rtnexthop of linux/rtnetlink.h, each with attributes of its own.
func hops(route defaultRoute, data []byte) (all []defaultRoute) {
	for len(data) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(data))
		if length < unix.SizeofRtNexthop || length > len(data) {
			break
		}
		hop := defaultRoute{family: route.family, link: indexFrom(data[4:8]), dead: route.dead || uint32(data[2])&unusable != 0}
		for kind, value := range attributes(data[unix.SizeofRtNexthop:length]) {
			if kind == unix.RTA_GATEWAY || kind == unix.RTA_VIA {
				hop.gateway = gatewayFrom(kind, value)
			}
		}
		all = append(all, hop)
		data = data[min((length+3)&^3, len(data)):]
	}
	return all
}

func indexFrom(value []byte) int {
	if len(value) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(value))
}

// gatewayFrom reads the next hop. RTA_VIA names its family first, which may be the other one (RFC 5549).
func gatewayFrom(kind uint16, value []byte) netip.Addr {
	if kind == unix.RTA_VIA {
		value = value[min(2, len(value)):]
	}
	ip, _ := netip.AddrFromSlice(value)
	return ip.Unmap()
}
