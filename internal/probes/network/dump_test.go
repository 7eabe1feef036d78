package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// The library reads the same routes in its own way.
func TestDefaultRoutesAreThoseOfTheLibrary(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	for i, name := range []string{"up0", "up1"} {
		s.cable(name, "far"+name[2:])
		s.addAddress(name, fmt.Sprintf("10.9.%d.2/24", i))
		s.addAddress(name, fmt.Sprintf("fd00:%d::2/64", i+9))
	}
	up0, up1 := s.link("up0").Attrs().Index, s.link("up1").Attrs().Index
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	s.must(err)
	_, pods, err := net.ParseCIDR("10.20.0.0/16")
	s.must(err)
	for metric, r := range []netlink.Route{
		{Gw: net.ParseIP("10.9.0.1")},
		{Gw: net.ParseIP("fd00:9::1")},
		{Dst: everything, LinkIndex: up1, Scope: netlink.SCOPE_LINK},
		{Dst: everything, LinkIndex: up0, Flags: int(netlink.FLAG_ONLINK), Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fd00:9::1")}},
		{Dst: everything, MultiPath: []*netlink.NexthopInfo{{LinkIndex: up0, Gw: net.ParseIP("10.9.0.7")}, {LinkIndex: up1, Gw: net.ParseIP("10.9.1.7")}}},
		{Dst: pods, Gw: net.ParseIP("10.9.0.1")},
		{Dst: everything, Gw: net.ParseIP("10.9.0.1"), Table: 1000},
		{Dst: everything, Type: unix.RTN_BLACKHOLE},
	} {
		r.Priority = metric + 1
		s.must(netlink.RouteAdd(&r))
	}
	s.down("far1")
	var want []defaultRoute
	for _, f := range []family{ipv4, ipv6} {
		routes, err := netlink.RouteList(nil, int(f))
		s.must(err)
		for _, r := range routes {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 || r.Type != unix.RTN_UNICAST {
				continue
			}
			hops := r.MultiPath
			if len(hops) == 0 {
				hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
			}
			for _, hop := range hops {
				if v, ok := hop.Via.(*netlink.Via); ok {
					hop.Gw = v.Addr
				}
				gateway, _ := netip.AddrFromSlice(hop.Gw)
				want = append(want, defaultRoute{family: f, link: hop.LinkIndex, gateway: gateway.Unmap(), dead: (r.Flags|hop.Flags)&unusable != 0})
			}
		}
	}
	got, err := readDefaultRoutes()
	s.must(err)
	if len(got) < 6 || !slices.Equal(got, want) {
		t.Errorf("got\n%+v, the library\n%+v", got, want)
	}
}

func TestDumpOfWhatTheKernelRefuses(t *testing.T) {
	if err := dump(unix.RTM_GETLINK+0x300, 0, nil); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
}

// Whatever comes, nothing is read beyond its end.
func TestMessagesThatAreNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		datagram := rapid.SliceOf(rapid.Byte()).Draw(t, "datagram")
		if len(datagram) > 4 && rapid.Bool().Draw(t, "of this length") {
			datagram[0], datagram[1], datagram[2], datagram[3] = byte(len(datagram)), 0, 0, 0
		}
		d := dumping{answer: unix.RTM_NEWROUTE, each: func(message []byte) error { defaultRoutesFrom(message); return nil }}
		_ = d.take(datagram)
		defaultRoutesFrom(datagram)
		hops(defaultRoute{}, datagram)
	})
}
