package vm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservedPort is a TCP port of 127.0.0.1 that is ours until released, also while QEMU, which forwards it, is off: a
// socket is bound to it and never listens. QEMU may listen because both sockets have SO_REUSEADDR.
type reservedPort struct {
	number, socket int
}

func reservePort() (*reservedPort, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &reservedPort{socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *reservedPort) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
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

// release gives the port back. It may be called on nil and more than once.
func (p *reservedPort) release() {
	if p != nil && p.socket >= 0 {
		_ = unix.Close(p.socket) // there is nothing unwritten in it
		p.socket = -1
	}
}
