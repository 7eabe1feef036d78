package network

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// BenchmarkLook looks at a machine with a default route and 110 pods, each with a veth and a route of its own.
func BenchmarkLook(b *testing.B) {
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer ns.Close()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	add := func(name, cidr string) int {
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
		l, err := netlink.LinkByName(name)
		must(err)
		peer, err := netlink.LinkByName(name + "p")
		must(err)
		a, err := netlink.ParseAddr(cidr)
		must(err)
		must(netlink.AddrAdd(l, a))
		must(netlink.LinkSetUp(peer))
		must(netlink.LinkSetUp(l))
		return l.Attrs().Index
	}
	must(netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1, Name: "lo"}}))
	uplink := add("up0", "10.9.0.2/24")
	for pod := range 110 {
		add(fmt.Sprintf("veth%d", pod), fmt.Sprintf("10.9.%d.1/24", pod+1))
	}
	gateway, err := netlink.ParseAddr("10.9.0.1/24")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: uplink, Gw: gateway.IP}))
	host, err := hostfs.Open(b.TempDir())
	must(err)
	defer host.Close()

	b.Run("interfaces", func(b *testing.B) {
		p := &interfacesLook{InterfacesOptions: asShipped}
		runtime.LockOSThread() // a sub-benchmark has a goroutine of its own
		must(netns.Set(ns))
		b.ReportAllocs()
		for b.Loop() {
			p.Run(b.Context())
		}
	})
	b.Run("default-route", func(b *testing.B) {
		p := &defaultRouteLook{host: host, DefaultRouteOptions: DefaultRouteOptions{Families: "any"}}
		runtime.LockOSThread() // a sub-benchmark has a goroutine of its own
		must(netns.Set(ns))
		b.ReportAllocs()
		for b.Loop() {
			p.Run(b.Context())
		}
	})
}
