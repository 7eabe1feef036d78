package network

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// interest is what a check looks at, so that the coming and going of pods leads to no look. It is never written in place.
type interest struct {
	// links by index, sorted.
	links []int
	// named says whether an interface of that name would matter, should it appear; nil: none would.
	named func(name string) bool
}

// groups are the multicast groups of rtnetlink that a check follows. Addresses belong to them for default routes too: the
// kernel drops the IPv4 routes of an address or an interface that goes without a message of their own.
var groups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}

const (
	firstWait   = time.Second
	longestWait = time.Minute
	// settles is the time from a message to the look it leads to: the kernel tells of an address that goes before it drops
	// the routes that go with it, and one change has several messages.
	settles = 100 * time.Millisecond
	// messageBuffer is above the size of all but the messages of interfaces with many virtual functions, in bytes. One
	// that does not fit leads to a look.
	messageBuffer = 16 << 10
)

// watch follows interfaces, addresses and routes of the network namespace of the calling thread, and calls look after a
// change that is of interest. It returns when ctx ends, and leaves nothing behind.
//
// It also calls look when a subscription begins, for what changed before, and when the kernel had to drop messages
// (ENOBUFS). A subscription that cannot be had or breaks is tried again after a wait, from a second up to a minute.
func watch(ctx context.Context, subscribe func() (*os.File, error), of func() *interest, look func()) {
	for wait := firstWait; ctx.Err() == nil; {
		if messages, err := subscribe(); err == nil {
			look()
			if follow(ctx, messages, of, look) {
				wait = firstWait
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// follow reads messages until there is an error that ends the subscription; it says whether any was read before.
func follow(ctx context.Context, messages *os.File, of func() *interest, look func()) (worked bool) {
	release := context.AfterFunc(ctx, func() { _ = messages.Close() })
	defer func() {
		if release() {
			_ = messages.Close()
		}
	}()
	buffer, due := make([]byte, messageBuffer), false
	for {
		n, err := messages.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			due = false
			_ = messages.SetReadDeadline(time.Time{})
			look()
			continue
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			return worked
		}
		worked = true
		if !due && (err != nil || worth(buffer[:n], of())) {
			due = true
			_ = messages.SetReadDeadline(time.Now().Add(settles))
		}
	}
}

// subscribe opens a socket that gets the messages of groups. Reading from it waits without a thread of its own. The
// library's own subscriptions hide ENOBUFS, and take 64 KiB anew for every message.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	address := unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		address.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &address); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// worth says whether one of the messages is of interest. What cannot be read is, and before the first look everything.
func worth(datagram []byte, in *interest) bool {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil || in == nil {
		return true
	}
	return slices.ContainsFunc(messages, in.in)
}

func (in *interest) in(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(m.Data) < unix.SizeofIfInfomsg || in.inLink(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) < unix.SizeofIfAddrmsg || in.has(int(nl.DeserializeIfAddrmsg(m.Data).Index))
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return true
		}
		route := nl.DeserializeRtMsg(m.Data)
		return route.Dst_len == 0 && route.Table == unix.RT_TABLE_MAIN
	}
	return false
}

// inLink : an interface that is looked at, one that a check would look at for its name, or a new member of either.
func (in *interest) inLink(data []byte) bool {
	if in.has(int(nl.DeserializeIfInfomsg(data).Index)) {
		return true
	}
	for kind, value := range attributes(data[unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_IFNAME && in.named != nil && in.named(unix.ByteSliceToString(value)):
			return true
		case kind == unix.IFLA_MASTER && len(value) == 4 && in.has(int(binary.NativeEndian.Uint32(value))):
			return true
		}
	}
	return false
}

func (in *interest) has(index int) bool {
	_, found := slices.BinarySearch(in.links, index)
	return found
}
