package systemd_test

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/test/machines"
)

// machineWithBus boots a machine whose system bus also listens in a folder of this machine, as it does for a pod that
// mounts the folder of the socket.
func machineWithBus(t *testing.T) (m *machines.Machine, socket string) {
	t.Helper()
	dir := t.TempDir()
	m = machines.ForTest(t, machines.Options{
		Binds: []machines.Bind{{Source: dir, Target: "/bus", Writable: true}},
		Files: []machines.File{{
			Path: "/etc/systemd/system/dbus.socket.d/listen.conf",
			Text: "[Socket]\nListenStream=/bus/system_bus_socket\n",
		}},
	})
	return m, filepath.Join(dir, "system_bus_socket")
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func exec(t *testing.T, m *machines.Machine, args ...string) string {
	t.Helper()
	out, err := m.Exec(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return strings.TrimSpace(out)
}

func TestSystemd(t *testing.T) {
	m, socket := machineWithBus(t)
	bus := systemd.NewBus(socket)
	t.Cleanup(bus.Close)
	const unit = "fettle-test.service"

	for _, tc := range []struct {
		name  string
		argv  []string
		limit time.Duration
		want  systemd.Result
	}{
		{name: "a command that succeeds", argv: []string{"/bin/true"}, want: systemd.Result{Succeeded: true, Reason: "success"}},
		{name: "one that fails gives its status", argv: []string{"/bin/sh", "-c", "exit 7"}, want: systemd.Result{Reason: "exit-code", ExitCode: 7}},
		{name: "one that does not exist", argv: []string{"/no/such/file"}, want: systemd.Result{Reason: "exit-code", ExitCode: 203}},
		{name: "one that is killed", argv: []string{"/bin/sh", "-c", "kill -9 $$"}, want: systemd.Result{Reason: "signal", ExitCode: 9}},
		{name: "one that does not end in time is ended", argv: []string{"/bin/sleep", "600"}, limit: time.Second, want: systemd.Result{Reason: "timeout", ExitCode: 15}},
		{
			name: "arguments arrive as they are",
			argv: []string{"/bin/sh", "-c", `[ "$1" = '$HOME $$ %n \n "q"' ]`, "sh", `$HOME $$ %n \n "q"`},
			want: systemd.Result{Succeeded: true, Reason: "success"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := bus.RunTransient(within(t, cmp.Or(tc.limit, time.Minute)), unit, tc.argv...)
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
			if left := exec(t, m, "systemctl", "list-units", "--all", "--plain", "--no-legend", unit); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}

	t.Run("a command whose caller gives up is stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t, time.Minute))
		time.AfterFunc(500*time.Millisecond, cancel)
		if _, err := bus.RunTransient(ctx, unit, "/bin/sleep", "600"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if left := exec(t, m, "systemctl", "list-units", "--all", "--plain", "--no-legend", unit); left != "" {
			t.Errorf("left behind: %s", left)
		}
	})
	t.Run("a command that somebody else stops has not succeeded", func(t *testing.T) {
		stopped := make(chan error, 1)
		go func() {
			for {
				if _, err := m.Exec(t.Context(), "systemctl", "stop", unit); err == nil || t.Context().Err() != nil {
					stopped <- err
					return
				}
			}
		}()
		got, err := bus.RunTransient(within(t, time.Minute), unit, "/bin/sleep", "600")
		if err != nil || got.Succeeded {
			t.Errorf("got %+v, %v", got, err)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a second unit of the same name is refused while the first runs", func(t *testing.T) {
		first := make(chan error, 1)
		ctx, cancel := context.WithCancel(within(t, time.Minute))
		go func() {
			_, err := bus.RunTransient(ctx, unit, "/bin/sleep", "600")
			first <- err
		}()
		for exec(t, m, "systemctl", "show", "-P", "ActiveState", unit) != "activating" {
			select {
			case err := <-first:
				t.Fatalf("the first has ended: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		if _, err := bus.RunTransient(within(t, time.Minute), unit, "/bin/true"); err == nil {
			t.Error("it was run")
		}
		cancel()
		<-first
	})
	t.Run("a bus that hangs costs no more than the deadline, and is used again once it does not", func(t *testing.T) {
		if err := bus.Reachable(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		daemon := exec(t, m, "systemctl", "show", "-P", "MainPID", "dbus.service")
		exec(t, m, "kill", "-STOP", daemon)
		for range 3 {
			began := time.Now()
			if err := bus.Reachable(within(t, 300*time.Millisecond)); err == nil {
				t.Error("a stopped bus answered")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		}
		exec(t, m, "kill", "-CONT", daemon)
		if err := bus.Reachable(within(t, 10*time.Second)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a bus that was restarted is connected to anew", func(t *testing.T) {
		if err := bus.Reachable(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		exec(t, m, "kill", "-KILL", exec(t, m, "systemctl", "show", "-P", "MainPID", "dbus.service"))
		var err error
		for ctx := within(t, 30*time.Second); ctx.Err() == nil; {
			if err = bus.Reachable(within(t, 2*time.Second)); err == nil {
				return
			}
		}
		t.Errorf("not reachable after the bus was restarted: %v", err)
	})
}

func TestWithoutSystemd(t *testing.T) {
	bus := systemd.NewBus(filepath.Join(t.TempDir(), "socket"))
	if err := bus.Reachable(within(t, 5*time.Second)); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("got %v, want an error that names the socket", err)
	}
}
