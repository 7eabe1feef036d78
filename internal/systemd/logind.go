package systemd

import (
	"context"
	"fmt"

	godbus "github.com/godbus/dbus/v5"
)

// logind is the manager of org.freedesktop.login1(5).
const (
	logindName    = "org.freedesktop.login1"
	logindPath    = "/org/freedesktop/login1"
	logindManager = logindName + ".Manager"
)

// Reboot asks logind to reboot the machine, as its inhibitors allow. It returns when logind has taken the request; the
// machine may go down before that, and then nothing returns.
func (b *Bus) Reboot(ctx context.Context) error {
	conn, err := connect(ctx, b.socket)
	if err != nil {
		return fmt.Errorf("ask logind to reboot: %w", err)
	}
	defer func() { _ = conn.Close() }()
	const interactive = false
	if err := conn.Object(logindName, logindPath).CallWithContext(ctx, logindManager+".Reboot", 0, interactive).Err; err != nil {
		return fmt.Errorf("ask logind to reboot: %w", err)
	}
	return nil
}

// ShuttingDown reports whether the machine is going down: logind has begun to prepare for it, or systemd is at it.
func (b *Bus) ShuttingDown(ctx context.Context) (bool, error) {
	conn, err := b.connection(ctx)
	if err != nil {
		return false, err
	}
	state, err := conn.SystemStateContext(ctx)
	if err != nil {
		return false, b.failed(conn, "tell its state", err)
	}
	if text, _ := state.Value.Value().(string); text == "stopping" {
		return true, nil
	}
	own, err := connect(ctx, b.socket)
	if err != nil {
		return false, fmt.Errorf("ask logind whether it shuts down: %w", err)
	}
	defer func() { _ = own.Close() }()
	var preparing godbus.Variant
	call := own.Object(logindName, logindPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, logindManager, "PreparingForShutdown")
	if err := call.Store(&preparing); err != nil {
		return false, fmt.Errorf("ask logind whether it shuts down: %w", err)
	}
	is, _ := preparing.Value().(bool)
	return is, nil
}
