package network

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func nothing() *interest { return &interest{} }

// heard waits for a call of look.
func heard(t *testing.T, told <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatalf("no look: %s", what)
	}
}

// The kernel drops messages that a slow reader has no room for. What they said is made up for by one look.
func TestDroppedMessagesLeadToALook(t *testing.T) {
	s := newSpace(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s.beside(func(ctx context.Context) {
		watch(ctx, func() (*os.File, error) {
			f, err := subscribe()
			if err != nil {
				return nil, err
			}
			raw, err := f.SyscallConn()
			if err != nil {
				return nil, err
			}
			return f, errors.Join(err, raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) // the kernel takes its least
			}))
		}, nothing, func() {
			select {
			case entered <- struct{}{}:
			case <-ctx.Done():
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
		})
	})
	heard(t, entered, "the subscription begins")
	// While that look is under way, messages pile up. None of them is of interest.
	for range 50 {
		s.must(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "pod0"}}))
		s.must(netlink.LinkDel(s.link("pod0")))
	}
	close(release)
	heard(t, entered, "messages were dropped")
}

// Pods that come and go lead to no look. Messages come in order, so the last interface's tells that all were read.
func TestPodsAreOfNoInterest(t *testing.T) {
	s := newSpace(t)
	s.up("lo")
	var looks, looksBefore atomic.Int64
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	in := &interest{links: []int{1}, named: func(name string) bool {
		if name == "last0" {
			looksBefore.CompareAndSwap(0, looks.Load()) // it may have several messages
		}
		return name == "last0"
	}}
	s.beside(func(ctx context.Context) {
		watch(ctx, subscribe, func() *interest { return in }, func() {
			select {
			case began <- struct{}{}:
			default:
			}
			if looks.Add(1) > 1 && looksBefore.Load() > 0 {
				select {
				case ended <- struct{}{}:
				default:
				}
			}
		})
	})
	heard(t, began, "the subscription begins")
	for range 20 {
		s.cable("veth0", "eth0")
		s.addAddress("eth0", "10.9.3.2/24")
		s.must(netlink.LinkDel(s.link("veth0")))
	}
	s.must(netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "last0"}}))
	heard(t, ended, "the last interface")
	if n := looksBefore.Load(); n != 1 {
		t.Errorf("%d looks before it, want the first one", n)
	}
}

func TestSubscriptionThatBreaksIsTakenUpAgain(t *testing.T) {
	s := newSpace(t)
	told := make(chan struct{})
	var tries int
	s.beside(func(ctx context.Context) {
		watch(ctx, func() (*os.File, error) {
			tries++
			switch tries {
			case 1:
				return nil, syscall.EMFILE
			case 2: // one that ends at once
				r, w, err := os.Pipe()
				if err == nil {
					w.Close()
				}
				return r, err
			}
			return subscribe()
		}, func() *interest { return nil }, func() {
			select {
			case told <- struct{}{}:
			case <-ctx.Done():
			}
		})
	})
	heard(t, told, "a subscription that ends at once")
	heard(t, told, "the one after it")
	s.up("lo")
	heard(t, told, "a change after it")
}

// Subscriptions leave no file, no goroutine and no thread behind.
func TestSubscriptionsEndWithTheirContext(t *testing.T) {
	s := newSpace(t)
	cycle := func() {
		told := make(chan struct{}, 1)
		stop := s.beside(func(ctx context.Context) { watch(ctx, subscribe, nothing, func() { told <- struct{}{} }) })
		heard(t, told, "the subscription begins")
		stop()
	}
	cycle()
	files, goroutines := open(t), runtime.NumGoroutine()
	for range 500 {
		cycle()
	}
	if now := open(t); now > files {
		t.Errorf("%d files are open, %d were", now, files)
	}
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines run, %d did", runtime.NumGoroutine(), goroutines)
		}
	}
}

// open counts netlink sockets among this process's files.
func open(t *testing.T) (sockets int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && len(to) > 6 && to[:6] == "socket" {
			sockets++
		}
	}
	return sockets
}

func TestWorth(t *testing.T) {
	in := &interest{links: []int{1, 4, 9}, named: func(name string) bool { return name == "eth7" }}
	name := func(n string) []byte { return attribute(unix.IFLA_IFNAME, append([]byte(n), 0)) }
	for _, tc := range []struct {
		name     string
		datagram []byte
		in       *interest
		want     bool
	}{
		{name: "an interface that is looked at", datagram: message(unix.RTM_NEWLINK, ifinfo(4)), in: in, want: true},
		{name: "one that is gone", datagram: message(unix.RTM_DELLINK, ifinfo(9)), in: in, want: true},
		{name: "a pod's interface", datagram: message(unix.RTM_NEWLINK, append(ifinfo(5), name("veth5")...)), in: in},
		{name: "one of a name that is looked at", datagram: message(unix.RTM_NEWLINK, append(ifinfo(7), name("eth7")...)), in: in, want: true},
		{name: "a new member of a bond", datagram: message(unix.RTM_NEWLINK, append(ifinfo(5), attribute(unix.IFLA_MASTER, []byte{4, 0, 0, 0})...)), in: in, want: true},
		{name: "a member of a bridge of pods", datagram: message(unix.RTM_NEWLINK, append(ifinfo(5), attribute(unix.IFLA_MASTER, []byte{6, 0, 0, 0})...)), in: in},
		{name: "an address of an interface that is looked at", datagram: message(unix.RTM_NEWADDR, []byte{unix.AF_INET, 24, 0, 0, 4, 0, 0, 0}), in: in, want: true},
		{name: "an address of another", datagram: message(unix.RTM_DELADDR, []byte{unix.AF_INET, 24, 0, 0, 5, 0, 0, 0}), in: in},
		{name: "a default route", datagram: message(unix.RTM_DELROUTE, route(0, unix.RT_TABLE_MAIN)), in: in, want: true},
		{name: "a route to a pod", datagram: message(unix.RTM_NEWROUTE, route(32, unix.RT_TABLE_MAIN)), in: in},
		{name: "a default route of another table", datagram: message(unix.RTM_NEWROUTE, route(0, 100)), in: in},
		{name: "the second message of a datagram", datagram: slices.Concat(message(unix.RTM_NEWLINK, ifinfo(5)), message(unix.RTM_NEWLINK, ifinfo(4))), in: in, want: true},
		{name: "something else", datagram: message(unix.RTM_NEWNEIGH, make([]byte, 12)), in: in},
		{name: "before the first look", datagram: message(unix.RTM_NEWLINK, ifinfo(5)), in: nil, want: true},
		{name: "a message that was cut", datagram: message(unix.RTM_NEWLINK, append(ifinfo(5), name("veth5")...))[:24], in: in, want: true},
		{name: "a message too short for its type", datagram: message(unix.RTM_NEWROUTE, []byte{2}), in: in, want: true},
		{name: "an address too short for its type", datagram: message(unix.RTM_NEWADDR, []byte{2}), in: in, want: true},
		{name: "attributes that cannot be read", datagram: message(unix.RTM_NEWLINK, append(ifinfo(5), 3, 0, 0, 0)), in: in},
		{name: "nothing", datagram: nil, in: in},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := worth(tc.datagram, tc.in); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// FuzzMessages : whatever arrives, it is read without a panic.
func FuzzMessages(f *testing.F) {
	f.Add(message(unix.RTM_NEWLINK, append(ifinfo(5), attribute(unix.IFLA_IFNAME, []byte("eth0\x00"))...)))
	f.Add(message(unix.RTM_NEWROUTE, route(0, 254)))
	f.Fuzz(func(_ *testing.T, datagram []byte) {
		worth(datagram, &interest{links: []int{1}, named: func(string) bool { return false }})
		if len(datagram) >= unix.SizeofIfInfomsg { // the kernel's messages have their header
			identify(datagram)
			addressFrom(datagram)
		}
	})
}

func message(kind uint16, data []byte) []byte {
	m := native32(uint32(unix.SizeofNlMsghdr + len(data)))
	m = append(m, byte(kind), byte(kind>>8), 0, 0)
	m = append(m, make([]byte, 8)...) // sequence and port
	m = append(m, data...)
	return append(m, make([]byte, -len(m)&3)...)
}

func ifinfo(index uint32) []byte {
	return slices.Concat([]byte{unix.AF_UNSPEC, 0, 1, 0}, native32(index), make([]byte, 8))
}

func route(bits, table byte) []byte {
	return []byte{unix.AF_INET, bits, 0, 0, table, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
}

func attribute(kind uint16, value []byte) []byte {
	a := append([]byte{byte(4 + len(value)), 0, byte(kind), byte(kind >> 8)}, value...)
	return append(a, make([]byte, -len(a)&3)...)
}

// native32 is of a little-endian machine, as all that the agent is built for are.
func native32(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }
