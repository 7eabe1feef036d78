package step

import (
	"context"
	"fmt"
	"os"
	"time"

	godbus "github.com/godbus/dbus/v5"
)

const (
	// busSocket is the system bus of the host.
	busSocket = "unix:path=/run/dbus/system_bus_socket"
	// inhibitLimit bounds the call to logind.
	inhibitLimit = 10 * time.Second
)

// inhibit takes a lock of logind against shutting down, if the order wants one, until release is called or this process
// ends. A step that must not be interrupted is not begun without. Source: org.freedesktop.login1(5), Inhibit.
func inhibit(ctx context.Context, o Order) (release func(), err error) {
	if o.Inhibit == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, inhibitLimit)
	defer cancel()
	conn, err := godbus.Connect(busSocket, godbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("hold off a shutdown: connect to the system bus: %w", err)
	}
	defer func() { _ = conn.Close() }() // the lock does not depend on it
	var lock godbus.UnixFD
	call := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1").CallWithContext(ctx,
		"org.freedesktop.login1.Manager.Inhibit", 0, "shutdown", "fettle", o.Inhibit, "block")
	if err := call.Store(&lock); err != nil {
		return nil, fmt.Errorf("hold off a shutdown: %w", err)
	}
	f := os.NewFile(uintptr(lock), "inhibitor")
	return func() { _ = f.Close() }, nil
}
