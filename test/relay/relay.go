// Package relay passes TCP connections on in tests, and fails them as networks do.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay listens on a port of its own until the test ends.
type Relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	valve *valve // of connections that are made now
	conns []net.Conn
	isCut bool
}

// valve lets what connections carry pass until it is shut.
type valve struct {
	shut chan struct{}
	once sync.Once
}

func newValve() *valve { return &valve{shut: make(chan struct{})} }

func (v *valve) close() { v.once.Do(func() { close(v.shut) }) }

// ForTest passes connections on to a target, host:port.
func ForTest(t testing.TB, target string) *Relay {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: listener, target: target, valve: newValve()}
	t.Cleanup(func() {
		_ = listener.Close()
		r.Cut(true)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.pass(t.Context(), conn)
		}
	}()
	return r
}

// Address is where it listens, host:port.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Swallow has what is sent over the connections there are go nowhere, without closing them, as a failed-over firewall
// does. New ones work.
func (r *Relay) Swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.valve.close()
	r.valve = newValve()
}

// SwallowAll is Swallow for new connections too: they are accepted, and nothing comes of them.
func (r *Relay) SwallowAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.valve.close()
}

// Cut closes all connections and those that are made until it is mended.
func (r *Relay) Cut(isCut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut, r.valve = isCut, newValve()
	closeAll(r.conns...)
	r.conns = nil
}

func (r *Relay) pass(ctx context.Context, in net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := new(net.Dialer).DialContext(ctx, "tcp", r.target)
	if err != nil {
		closeAll(in)
		return
	}
	if r.isCut {
		closeAll(in, out)
		return
	}
	r.conns = append(r.conns, in, out)
	v := r.valve
	go v.copy(out, in)
	go v.copy(in, out)
}

func (v *valve) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-v.shut:
			if err == nil {
				continue // swallowed
			}
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				closeAll(from)
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				closeAll(from)
			}
			closeAll(to)
			return
		}
	}
}

func closeAll(conns ...net.Conn) {
	for _, c := range conns {
		_ = c.Close() // nothing is waiting to be sent
	}
}
