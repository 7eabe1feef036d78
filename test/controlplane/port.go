package controlplane

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// port is a TCP port of 127.0.0.1 that is ours until released, also while the server that uses it is down: a socket
// is bound to it with SO_REUSEPORT and never listens. The server must set SO_REUSEPORT too (--permit-port-sharing).
type port struct {
	number int
	socket int
}

func reservePort() (*port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
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

func (p *port) String() string { return strconv.Itoa(p.number) }

func (p *port) url() string { return "https://" + net.JoinHostPort("127.0.0.1", p.String()) }

func (p *port) release() {
	if p.socket >= 0 {
		_ = unix.Close(p.socket)
		p.socket = -1
	}
}
