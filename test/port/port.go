// Package port reserves TCP ports of 127.0.0.1 for servers that come and go: a port stays ours while its server is down.
//
// A socket is bound to the port and never listens. The server can listen beside it when both sockets have the same
// option of sharing set.
package port

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Sharing is the socket option that the server sets as well.
type Sharing int

const (
	// ReusePort is SO_REUSEPORT, as Kubernetes' --permit-port-sharing sets it.
	ReusePort Sharing = unix.SO_REUSEPORT
	// ReuseAddress is SO_REUSEADDR, as QEMU's port forwarding sets it.
	ReuseAddress Sharing = unix.SO_REUSEADDR
)

// Port is a reserved port.
type Port struct{ number, socket int }

// Reserve reserves a free port until Release.
func Reserve(sharing Sharing) (*Port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &Port{socket: socket}
	if err := p.bind(sharing); err != nil {
		p.Release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *Port) bind(sharing Sharing) error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, int(sharing), 1); err != nil {
		return err
	}
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	name, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.number = name.(*unix.SockaddrInet4).Port
	return nil
}

// Number is the port's number.
func (p *Port) Number() int { return p.number }

func (p *Port) String() string { return strconv.Itoa(p.number) }

// Release gives the port back. It may be called on nil and more than once.
func (p *Port) Release() {
	if p != nil && p.socket >= 0 {
		_ = unix.Close(p.socket) // there is nothing unwritten in it
		p.socket = -1
	}
}
