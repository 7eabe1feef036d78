package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Unit is where a unit stands. The words are systemd's own.
type Unit struct {
	Name string
	// Load is loaded, not-found, masked, bad-setting, error, …
	Load string
	// Active is active, reloading, inactive, failed, activating, deactivating, …
	Active string
	// Sub is the finer state, which depends on the type of unit: running, exited, auto-restart, …
	Sub string
	// Queued : a job is queued for it or runs, so that this is not where it stays.
	Queued bool
}

// Units gives the states of units, in the order of their names and under these names, also where they are aliases. A name
// that no unit has gives one that is not-found. It takes one call, however many there are.
func (b *Bus) Units(ctx context.Context, names ...string) ([]Unit, error) {
	conn, err := b.connection(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := conn.ListUnitsByNamesContext(ctx, names)
	if err != nil {
		return nil, b.failed(conn, "list units", err)
	}
	if len(listed) != len(names) { // systemd passes over names that no unit can have
		return nil, fmt.Errorf("ask systemd to list units: it told of %d of %d; is each a full name, as in ssh.service?", len(listed), len(names))
	}
	units := unitsOf(listed)
	for i := range units {
		units[i].Name = names[i]
	}
	return units, nil
}

// FailedUnits are all units that have failed, in systemd's order.
func (b *Bus) FailedUnits(ctx context.Context) ([]Unit, error) {
	conn, err := b.connection(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := conn.ListUnitsFilteredContext(ctx, []string{"failed"})
	if err != nil {
		return nil, b.failed(conn, "list failed units", err)
	}
	return unitsOf(listed), nil
}

func unitsOf(listed []dbus.UnitStatus) []Unit {
	units := make([]Unit, 0, len(listed))
	for _, u := range listed {
		units = append(units, Unit{Name: u.Name, Load: u.LoadState, Active: u.ActiveState, Sub: u.SubState, Queued: u.JobId != 0})
	}
	return units
}

// Interfaces of units whose properties can be asked for.
const (
	OfUnit    = "Unit"
	OfService = "Service"
)

// Property reads one property of a unit, of the type that D-Bus gives it, e.g. a uint32 for NRestarts of OfService. A
// unit that is not loaded is loaded for it.
func (b *Bus) Property(ctx context.Context, unit, of, property string) (any, error) {
	conn, err := b.connection(ctx)
	if err != nil {
		return nil, err
	}
	got, err := conn.GetUnitTypePropertyContext(ctx, unit, of, property)
	if err != nil {
		return nil, b.failed(conn, "tell "+property+" of "+unit, err)
	}
	return got.Value.Value(), nil
}

// failed wraps the error of a call, and gives up the connection unless the other side answered it with that error.
func (b *Bus) failed(conn *dbus.Conn, doing string, err error) error {
	var answer godbus.Error
	if !errors.As(err, &answer) {
		b.lost(conn)
	}
	return fmt.Errorf("ask systemd to %s: %w", doing, err)
}
