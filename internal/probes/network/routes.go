package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
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
		for _, f := range []family{ipv4, ipv6} {
			// Without a filter the library leaves out other tables than main, and clones.
			if err := netlink.RouteListFilteredIter(int(f), &netlink.Route{}, 0, func(r netlink.Route) bool {
				if r.Type == unix.RTN_UNICAST && isDefault(r.Dst) {
					routes = append(routes, hops(f, r)...)
				}
				return true
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

func isDefault(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	ones, _ := dst.Mask.Size()
	return ones == 0 && dst.IP.IsUnspecified()
}

// unusable are the flags of a hop that the kernel passes over.
const unusable = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN

func hops(f family, r netlink.Route) []defaultRoute {
	if len(r.MultiPath) == 0 {
		return []defaultRoute{{family: f, link: r.LinkIndex, gateway: gatewayOf(r.Gw, r.Via), dead: r.Flags&unusable != 0}}
	}
	all := make([]defaultRoute, 0, len(r.MultiPath))
	for _, hop := range r.MultiPath {
		all = append(all, defaultRoute{family: f, link: hop.LinkIndex, gateway: gatewayOf(hop.Gw, hop.Via), dead: (r.Flags|hop.Flags)&unusable != 0})
	}
	return all
}

// gatewayOf is the next hop, which may be of the other family (RFC 5549).
func gatewayOf(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		gw = v.Addr
	}
	ip, _ := netip.AddrFromSlice(gw)
	return ip.Unmap()
}
