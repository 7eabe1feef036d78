package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// SocketPath is where the system bus listens, on the machine.
const SocketPath = "/run/dbus/system_bus_socket"

// RunningPath exists on a machine whose init is systemd; see sd_booted(3).
const RunningPath = "/run/systemd/system"

// Bus is a connection to systemd that is made when it is needed and made again when it was lost.
type Bus struct {
	socket string

	dialing chan struct{} // holds a token while nobody dials; a dial that hangs is not joined by a second
	mu      sync.Mutex
	conn    *dbus.Conn
}

// NewBus uses the bus whose socket is at a path of this process's file system. It does not connect yet.
func NewBus(socket string) *Bus {
	b := &Bus{socket: socket, dialing: make(chan struct{}, 1)}
	b.dialing <- struct{}{}
	return b
}

// Close closes the connection, if there is one.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
}

// Reachable asks systemd for its state. Any answer will do: a machine that is degraded or starting has a systemd to work
// with. It returns when ctx ends, whatever systemd does.
func (b *Bus) Reachable(ctx context.Context) error {
	conn, err := b.connection(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.SystemStateContext(ctx); err != nil {
		b.lost(conn)
		return fmt.Errorf("ask systemd for its state: %w", err)
	}
	return nil
}

func (b *Bus) connection(ctx context.Context) (*dbus.Conn, error) {
	select {
	case <-b.dialing:
		defer func() { b.dialing <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to systemd over %s: %w", b.socket, ctx.Err())
	}
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	if conn != nil && conn.Connected() {
		return conn, nil
	}
	conn, err := dial(ctx, b.socket)
	if err != nil {
		return nil, fmt.Errorf("connect to systemd over %s: %w", b.socket, err)
	}
	b.mu.Lock()
	b.conn = conn
	b.mu.Unlock()
	return conn, nil
}

// dial opens what calls to systemd need: connections of go-systemd's making.
func dial(ctx context.Context, socket string) (*dbus.Conn, error) {
	return bounded(ctx, func(life context.Context) (*dbus.Conn, error) {
		return dbus.NewConnection(func() (*godbus.Conn, error) { return open(life, socket) })
	}, (*dbus.Conn).Close)
}

// connect opens a plain connection to the bus.
func connect(ctx context.Context, socket string) (*godbus.Conn, error) {
	return bounded(ctx, func(life context.Context) (*godbus.Conn, error) {
		return open(life, socket)
	}, func(c *godbus.Conn) { _ = c.Close() })
}

// open connects and authenticates. It takes as long as the other side does, unless life ends, and with life ends the
// connection.
func open(life context.Context, socket string) (*godbus.Conn, error) {
	bus, err := godbus.Dial("unix:path="+godbus.EscapeBusAddressValue(socket), godbus.WithContext(life))
	if err != nil {
		return nil, err
	}
	if err := bus.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	if err := bus.Hello(); err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	return bus, nil
}

// bounded makes a connection. ctx bounds the making alone, not the life of the connection.
func bounded[C any](ctx context.Context, establish func(life context.Context) (C, error), abandon func(C)) (C, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, end) // unblocks calls that take no context
	conn, err := establish(life)
	if !keep() { // ctx ended first, and what failed after that failed for that
		if err == nil {
			abandon(conn)
		}
		err = ctx.Err()
	}
	if err != nil {
		end()
		var none C
		return none, err
	}
	return conn, nil
}

// lost gives up a connection that did not answer.
func (b *Bus) lost(conn *dbus.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == conn {
		b.conn = nil
	}
	conn.Close()
}
