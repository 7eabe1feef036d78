package systemd_test

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/test/machines"
)

// install writes a service that sleeps, unless told to do something else.
func install(t *testing.T, m *machines.Machine, name, service string) {
	t.Helper()
	if err := m.WriteFile(t.Context(), "/etc/systemd/system/"+name, "[Service]\n"+service+"\n", 0o644); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "systemctl", "daemon-reload")
}

func TestUnits(t *testing.T) {
	m, socket := machineWithBus(t)
	bus := systemd.NewBus(socket)
	t.Cleanup(bus.Close)
	install(t, m, "sleeps.service", "ExecStart=/bin/sleep infinity")
	install(t, m, "fails.service", "Type=oneshot\nExecStart=/bin/sh -c 'exit 3'")
	install(t, m, "slow.service", "Type=oneshot\nExecStart=/bin/sleep infinity")
	exec(t, m, "systemctl", "mask", "masked.service")
	exec(t, m, "systemctl", "start", "sleeps.service")
	exec(t, m, "systemctl", "start", "--no-block", "slow.service")
	exec(t, m, "sh", "-c", "! systemctl start fails.service 2>&1")

	exec(t, m, "ln", "-s", "sleeps.service", "/etc/systemd/system/alias.service")
	exec(t, m, "systemctl", "daemon-reload")

	want := []systemd.Unit{
		{Name: "alias.service", Load: "loaded", Active: "active", Sub: "running"},
		{Name: "sleeps.service", Load: "loaded", Active: "active", Sub: "running"},
		{Name: "fails.service", Load: "loaded", Active: "failed", Sub: "failed"},
		{Name: "masked.service", Load: "masked", Active: "inactive", Sub: "dead"},
		{Name: "no-such.service", Load: "not-found", Active: "inactive", Sub: "dead"},
		{Name: "slow.service", Load: "loaded", Active: "activating", Sub: "start", Queued: true},
	}
	var names []string
	for _, u := range want {
		names = append(names, u.Name)
	}
	got, err := bus.Units(within(t, time.Minute), names...)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if got, err := bus.Units(within(t, time.Minute), "sleeps.service", "sleeps"); err == nil {
		t.Errorf("a name without a type gives %+v", got)
	}
	failed, err := bus.FailedUnits(within(t, time.Minute))
	if err != nil || !slices.Contains(failed, systemd.Unit{Name: "fails.service", Load: "loaded", Active: "failed", Sub: "failed"}) {
		t.Errorf("failed units: %+v, %v", failed, err)
	}
	for _, p := range []struct {
		unit, of, property string
		want               any
	}{
		{"fails.service", systemd.OfService, "Result", "exit-code"},
		{"fails.service", systemd.OfService, "ExecMainStatus", int32(3)},
		{"sleeps.service", systemd.OfService, "NRestarts", uint32(0)},
		{"slow.service", systemd.OfUnit, "UnitFileState", "static"},
	} {
		if got, err := bus.Property(within(t, time.Minute), p.unit, p.of, p.property); err != nil || got != p.want {
			t.Errorf("%s of %s is %v (%T), %v; want %v", p.property, p.unit, got, got, err, p.want)
		}
	}
	if _, err := bus.Property(within(t, time.Minute), "multi-user.target", systemd.OfService, "NRestarts"); err == nil {
		t.Error("a target has restarts")
	}
	// What systemd answered with an error costs no connection.
	connections := func() string { return exec(t, m, "sh", "-c", "busctl list --unique --no-legend | wc -l") }
	before := connections()
	for range 5 {
		_, _ = bus.Property(within(t, time.Minute), "multi-user.target", systemd.OfService, "NRestarts")
	}
	if after := connections(); after != before {
		t.Errorf("%s connections became %s", before, after)
	}
}

// silentBus listens and accepts, and never says a word, as a bus does that hangs.
func silentBus(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return socket
}

func TestBusThatNeverAnswers(t *testing.T) {
	bus := systemd.NewBus(silentBus(t))
	t.Cleanup(bus.Close)
	for name, call := range map[string]func() error{
		"Reachable":   func() error { return bus.Reachable(within(t, 100*time.Millisecond)) },
		"Units":       func() error { _, err := bus.Units(within(t, 100*time.Millisecond), "a.service"); return err },
		"FailedUnits": func() error { _, err := bus.FailedUnits(within(t, 100*time.Millisecond)); return err },
		"Property": func() error {
			_, err := bus.Property(within(t, 100*time.Millisecond), "a.service", systemd.OfUnit, "Result")
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
