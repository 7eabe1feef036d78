package systemd_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/systemd"
)

// follow follows units and gives a channel that holds a token after each change.
func follow(t *testing.T, bus *systemd.Bus, units ...string) <-chan struct{} {
	t.Helper()
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		bus.Follow(ctx, units, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("Follow did not return when its context ended")
		}
	})
	return changes
}

// await waits for a change after which holds.
func await(t *testing.T, changes <-chan struct{}, what string, holds func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case <-changes:
			if holds() {
				return
			}
		case <-limit:
			t.Fatalf("not told that %s", what)
		}
	}
}

func TestFollow(t *testing.T) {
	m, socket := machineWithBus(t)
	bus := systemd.NewBus(socket)
	t.Cleanup(bus.Close)
	const unit = "followed-unit.service"
	install(t, m, unit, "ExecStart=/bin/sleep infinity")
	install(t, m, "other.service", "ExecStart=/bin/sleep infinity")
	exec(t, m, "systemctl", "start", unit)
	state := func() string {
		ctx := within(t, time.Minute)
		for {
			units, err := bus.Units(ctx, unit)
			switch {
			case err == nil:
				return units[0].Active
			case ctx.Err() != nil:
				t.Fatal(err)
			} // else the bus is on its way back
		}
	}
	failsAndIsSeen := func(t *testing.T, changes <-chan struct{}) {
		t.Helper()
		exec(t, m, "systemctl", "kill", "--signal=KILL", unit)
		await(t, changes, "the unit failed", func() bool { return state() == "failed" })
		exec(t, m, "systemctl", "start", unit)
		await(t, changes, "the unit was started", func() bool { return state() == "active" })
	}

	changes := follow(t, bus, unit, "no-such.service")
	await(t, changes, "it is followed", func() bool { return state() == "active" })
	failsAndIsSeen(t, changes)

	t.Run("other units are not heard of", func(t *testing.T) {
		// The last change of the unit may still be under way: its own signals come before those of what follows it.
		exec(t, m, "systemctl", "kill", "--signal=KILL", unit)
		await(t, changes, "the unit failed", func() bool { return state() == "failed" })
		install(t, m, "quiet.service", "ExecStart=/bin/true")
		other := follow(t, bus, "quiet.service")
		await(t, other, "it is followed", func() bool { return true })
		exec(t, m, "systemctl", "start", "other.service")
		exec(t, m, "systemctl", "stop", "other.service")
		exec(t, m, "systemctl", "start", unit)
		await(t, changes, "the unit was started", func() bool { return state() == "active" })
		select {
		case <-other:
			t.Error("told of a unit that is not followed")
		default:
		}
	})
	t.Run("after systemd executed itself anew", func(t *testing.T) {
		exec(t, m, "systemctl", "daemon-reexec")
		failsAndIsSeen(t, changes)
	})
	t.Run("after systemd read its units anew", func(t *testing.T) {
		exec(t, m, "systemctl", "daemon-reload")
		failsAndIsSeen(t, changes)
	})
	t.Run("after the bus was restarted", func(t *testing.T) {
		exec(t, m, "systemctl", "restart", "dbus.service")
		// It fails while nobody can be told. Being subscribed again is told too, and that is when it is seen.
		exec(t, m, "systemctl", "kill", "--signal=KILL", unit)
		await(t, changes, "the unit failed", func() bool { return state() == "failed" })
		exec(t, m, "systemctl", "start", unit)
		await(t, changes, "the unit was started", func() bool { return state() == "active" })
	})
}

func TestFollowEndsWhereThereIsNoBus(t *testing.T) {
	for name, socket := range map[string]string{"no socket": filepath.Join(t.TempDir(), "none"), "a bus that hangs": silentBus(t)} {
		t.Run(name, func(t *testing.T) {
			bus := systemd.NewBus(socket)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			bus.Follow(ctx, []string{"a.service"}, func() { t.Error("told of a change") })
		})
	}
}
