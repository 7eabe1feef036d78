package network

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
)

// patience bounds what a test waits for; it says nothing of how long things take.
const patience = time.Minute

// space is a network namespace of the test's own: the thread that the test runs on is in it, and ends with the test.
type space struct {
	*testing.T
	ns netns.NsHandle
}

func newSpace(t *testing.T) space {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread must not be used again
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("a network namespace needs root: %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return space{T: t, ns: ns}
}

// beside runs something in a goroutine of its own in the namespace. The test waits for its end.
func (s space) beside(run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if err := netns.Set(s.ns); err != nil {
			s.Error(err)
			return
		}
		run(ctx)
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-ended }) }
	s.Cleanup(stop)
	return stop
}

func (s space) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s space) link(name string) netlink.Link {
	s.Helper()
	l, err := netlink.LinkByName(name)
	s.must(err)
	return l
}

func (s space) up(names ...string) {
	s.Helper()
	for _, name := range names {
		s.must(netlink.LinkSetUp(s.link(name)))
	}
}

func (s space) down(name string) { s.Helper(); s.must(netlink.LinkSetDown(s.link(name))) }

// cable makes two ends of a veth pair, switched on, and waits until the kernel has noticed the carrier.
func (s space) cable(name, peer string) {
	s.Helper()
	s.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
	s.up(peer, name)
	for deadline := time.Now().Add(patience); s.link(name).Attrs().OperState != netlink.OperUp; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("%s has no carrier", name)
		}
	}
}

func (s space) address(cidr string) *netlink.Addr {
	s.Helper()
	a, err := netlink.ParseAddr(cidr)
	s.must(err)
	a.Flags = 0x02 // IFA_F_NODAD: nobody else is there to have it
	return a
}

func (s space) addAddress(name, cidr string) {
	s.Helper()
	s.must(netlink.AddrReplace(s.link(name), s.address(cidr)))
}

func (s space) delAddress(name, cidr string) {
	s.Helper()
	s.must(netlink.AddrDel(s.link(name), s.address(cidr)))
}

func (s space) addDefault(name, gateway string) {
	s.Helper()
	s.must(netlink.RouteAdd(&netlink.Route{LinkIndex: s.link(name).Attrs().Index, Gw: net.ParseIP(gateway)}))
}

func (s space) delDefault(name, gateway string) {
	s.Helper()
	s.must(netlink.RouteDel(&netlink.Route{LinkIndex: s.link(name).Attrs().Index, Gw: net.ParseIP(gateway)}))
}

// machine is the file system of a machine with or without a kubelet.
func (s space) machine(withKubelet bool) *hostfs.Root {
	s.Helper()
	dir := s.TempDir()
	if withKubelet {
		s.must(os.MkdirAll(dir+kubeletDir, 0o755))
	}
	root, err := hostfs.Open(dir)
	s.must(err)
	s.Cleanup(func() { _ = root.Close() })
	return root
}

// follower is a probe that is looked at as the scheduler would: when its Watch says so, and never else.
type follower struct {
	space
	probe probes.Watcher
	told  chan struct{}
}

func (s space) follow(p probes.Watcher) *follower {
	s.Helper()
	f := &follower{space: s, probe: p, told: make(chan struct{}, 1)}
	s.beside(func(ctx context.Context) {
		p.Watch(ctx, func() {
			select {
			case f.told <- struct{}{}:
			default: // a look is to come anyway
			}
		})
	})
	return f
}

// await looks whenever the probe asks for it, until the result is the wanted one.
func (f *follower) await(verdict health.Verdict, reason, message string) {
	f.Helper()
	limit := time.After(patience)
	want, got := health.Result{Verdict: verdict, Reason: reason, Message: message}, health.Result{}
	for {
		select {
		case <-f.told:
			if got = f.probe.Run(f.Context()); got == want {
				return
			}
		case <-limit:
			f.Fatalf("no message of the kernel led to\n%+v, the last look found\n%+v", want, got)
		}
	}
}
