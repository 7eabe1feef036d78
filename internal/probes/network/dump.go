package network

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// answerBuffer holds what the kernel sends at once: 32 KiB, or one object where that is larger, as an interface with
	// hundreds of virtual functions is.
	answerBuffer = 64 << 10
	// answerTime bounds the wait for it. The kernel answers from memory.
	answerTime = 10 * time.Second
)

// buffers are for one dump after another: a machine with many pods has large ones.
var buffers = sync.Pool{New: func() any { return new([answerBuffer]byte) }}

// dump asks rtnetlink for all objects of a kind, and hands on each message as it comes, without its header. Of a message
// nothing may be kept. The library's own takes 64 KiB anew for each datagram, and as much again to take it apart.
func dump(ask int, answer uint16, each func(message []byte) error, with ...nl.NetlinkRequestData) error {
	request := nl.NewNetlinkRequest(ask, unix.NLM_F_DUMP)
	for _, data := range with {
		request.AddData(data)
	}
	socket, err := openKernel()
	if err != nil {
		return err
	}
	defer socket.Close()
	if _, err := socket.Write(request.Serialize()); err != nil {
		return err
	}
	buffer := buffers.Get().(*[answerBuffer]byte)
	defer buffers.Put(buffer)
	d := dumping{sequence: request.Seq, answer: answer, each: each}
	for !d.done {
		n, err := socket.Read(buffer[:])
		if err != nil {
			return err
		}
		if err := d.take(buffer[:n]); err != nil {
			return err
		}
	}
	if d.interrupted {
		return netlink.ErrDumpInterrupted
	}
	return nil
}

// openKernel opens a socket that speaks with the kernel and nobody else.
func openKernel() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	socket := os.NewFile(uintptr(fd), "rtnetlink")
	return socket, socket.SetDeadline(time.Now().Add(answerTime))
}

// dumping is a dump on its way.
type dumping struct {
	sequence          uint32
	answer            uint16
	each              func(message []byte) error
	done, interrupted bool
}

// take takes in a datagram; see netlink(7).
func (d *dumping) take(datagram []byte) error {
	for len(datagram) > 0 && !d.done {
		if len(datagram) < unix.SizeofNlMsghdr {
			return errTruncated
		}
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < unix.SizeofNlMsghdr || length > len(datagram) {
			return errTruncated
		}
		kind, flags := binary.NativeEndian.Uint16(datagram[4:]), binary.NativeEndian.Uint16(datagram[6:])
		sequence, message := binary.NativeEndian.Uint32(datagram[8:]), datagram[unix.SizeofNlMsghdr:length]
		datagram = datagram[min((length+3)&^3, len(datagram)):]
		if sequence != d.sequence {
			continue
		}
		d.interrupted = d.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		switch kind {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			d.done = true
			if len(message) < 4 {
				continue // of some kernels DONE says nothing more
			}
			if errno := -int32(binary.NativeEndian.Uint32(message)); errno > 0 {
				return unix.Errno(errno)
			}
		case d.answer:
			if err := d.each(message); err != nil {
				return err
			}
		}
	}
	return nil
}

var errTruncated = fmt.Errorf("rtnetlink: a message is not whole, of at most %d bytes", answerBuffer)
