package runtime_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/test/machines"
)

// machine is a real systemd machine, and the agent's way to its systemd.
type machine struct {
	*machines.Machine
	t   *testing.T
	bus *systemd.Bus
}

func bootMachine(t *testing.T) machine {
	t.Helper()
	dir := t.TempDir()
	m := machines.ForTest(t, machines.Options{
		Binds: []machines.Bind{{Source: dir, Target: "/bus", Writable: true}},
		Files: []machines.File{{
			Path: "/etc/systemd/system/dbus.socket.d/listen.conf",
			Text: "[Socket]\nListenStream=/bus/system_bus_socket\n",
		}},
	})
	bus := systemd.NewBus(filepath.Join(dir, "system_bus_socket"))
	t.Cleanup(bus.Close)
	return machine{Machine: m, t: t, bus: bus}
}

func (m machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.Exec(m.t.Context(), args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// install writes a unit file and has systemd read it.
func (m machine) install(name, text string) {
	m.t.Helper()
	if err := m.WriteFile(m.t.Context(), "/etc/systemd/system/"+name, text, 0o644); err != nil {
		m.t.Fatal(err)
	}
	m.run("systemctl", "daemon-reload")
}

const sleeps = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

func (m machine) units(set func(*runtime.UnitsOptions)) probes.Probe {
	o := runtime.Units.NewOptions().(*runtime.UnitsOptions)
	if set != nil {
		set(o)
	}
	return runtime.Units.Build(probes.Env{Systemd: m.bus}, o)
}

// awaitReason looks until the probe comes to the reason: systemd takes its time to notice and to do things.
func (m machine) awaitReason(p probes.Probe, reason string) health.Result {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := look(m.t, p, patience)
		if got.Reason == reason {
			return got
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("got %+v, want %s", got, reason)
		}
	}
}

func TestUnitsOfARealMachine(t *testing.T) {
	m := bootMachine(t)
	well := "nothing is wrong with "

	t.Run("installed and enabled", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		p := m.units(nil)
		const none = "none of the units is installed and enabled on this machine"
		expect(t, look(t, p, patience), health.NotApplicable, health.ReasonNotApplicable, none)
		m.install("containerd.service", sleeps)
		expect(t, look(t, p, patience), health.NotApplicable, health.ReasonNotApplicable, none)
		m.run("systemctl", "enable", "containerd.service")
		expect(t, look(t, p, patience), health.Fatal, runtime.UnitNotActive, "containerd.service is inactive (dead)")
		m.run("systemctl", "start", "containerd.service")
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, well+"containerd.service")
		m.run("systemctl", "kill", "--signal=KILL", "containerd.service")
		expect(t, m.awaitReason(p, runtime.UnitFailed), health.Fatal, runtime.UnitFailed, "containerd.service has failed (signal)")
		m.run("systemctl", "restart", "containerd.service")
		m.awaitReason(p, health.ReasonOK)
		m.run("systemctl", "disable", "--now", "containerd.service")
		expect(t, look(t, p, patience), health.NotApplicable, health.ReasonNotApplicable, none)
		m.run("systemctl", "mask", "--runtime", "crio.service")
		expect(t, look(t, p, patience), health.NotApplicable, health.ReasonNotApplicable, none)
	})
	t.Run("required and optional", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		p := m.units(func(o *runtime.UnitsOptions) { o.Units = []string{"late.service"} })
		expect(t, look(t, p, patience), health.Fatal, runtime.UnitNotFound, "late.service is not-found")
		hopes := m.units(func(o *runtime.UnitsOptions) { o.OptionalUnits = []string{"late.service"} })
		expect(t, look(t, hopes, patience), health.Degraded, runtime.OptionalUnitDown, "late.service is not-found")
		m.install("late.service", sleeps)
		m.run("systemctl", "start", "late.service")
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, well+"late.service")
		expect(t, look(t, hopes, patience), health.OK, health.ReasonOK, well+"late.service")
		m.run("systemctl", "mask", "--runtime", "--now", "late.service")
		// A file in /etc wins over the mask in /run until it is gone.
		if err := m.RemoveFile(t.Context(), "/etc/systemd/system/late.service"); err != nil {
			t.Fatal(err)
		}
		m.run("systemctl", "daemon-reload")
		expect(t, look(t, p, patience), health.Fatal, runtime.UnitNotFound, "late.service is masked")
	})
	t.Run("a oneshot service", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		m.install("setup.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
		m.run("systemctl", "enable", "setup.service")
		p := m.units(func(o *runtime.UnitsOptions) { o.Units = []string{"setup.service"} })
		expect(t, look(t, p, patience), health.Fatal, runtime.UnitNotActive, "setup.service is inactive (dead)")
		m.run("systemctl", "start", "setup.service")
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, well+"setup.service")
	})
	t.Run("other types of units", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		p := m.units(func(o *runtime.UnitsOptions) { o.Units = []string{"dbus.socket", "multi-user.target", "-.mount"} })
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, well+"-.mount, dbus.socket, multi-user.target")
	})
	t.Run("restarted again and again", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		m.install("loops.service", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=0\nExecStart=/bin/sleep infinity\n")
		m.run("systemctl", "start", "loops.service")
		p := m.units(func(o *runtime.UnitsOptions) { o.Units, o.RestartsDegraded = []string{"loops.service"}, 3 })
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, well+"loops.service")
		restarts := func() string { return m.run("systemctl", "show", "-P", "NRestarts", "loops.service") }
		for slices.Contains([]string{"0", "1", "2"}, restarts()) {
			// There is nothing to kill between two of its processes.
			_, _ = m.Exec(t.Context(), "systemctl", "kill", "--signal=KILL", "loops.service")
		}
		expect(t, m.awaitReason(p, runtime.UnitRestarting), health.Degraded, runtime.UnitRestarting, "loops.service is restarted again and again")
		// Started by hand: systemd sets its counter back, and what happened stays.
		m.run("systemctl", "restart", "loops.service")
		if n := restarts(); n != "0" {
			t.Errorf("NRestarts is %s", n)
		}
		expect(t, look(t, p, patience), health.Degraded, runtime.UnitRestarting, "loops.service is restarted again and again")
	})
	t.Run("that is starting for long", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		m.install("slow.service", "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n")
		m.run("systemctl", "start", "--no-block", "slow.service")
		p := m.units(func(o *runtime.UnitsOptions) { o.Units, o.StuckAfter = []string{"slow.service"}, time.Second })
		expect(t, m.awaitReason(p, runtime.UnitStuck), health.Degraded, runtime.UnitStuck, "slow.service is activating (start) for long")
	})
	t.Run("any that failed", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		m.run("systemctl", "reset-failed")
		p := m.units(func(o *runtime.UnitsOptions) { o.InstalledUnits, o.FailedUnits = nil, true })
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, "no unit has failed")
		m.install("fails.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
		m.run("sh", "-c", "! systemctl start fails.service 2>&1")
		expect(t, look(t, p, patience), health.Degraded, runtime.OtherUnitsFailed, "fails.service failed")
		m.run("systemctl", "reset-failed")
		expect(t, look(t, p, patience), health.OK, health.ReasonOK, "no unit has failed")
	})
	t.Run("that fail are looked at at once", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		m.install("kubelet.service", sleeps)
		m.run("systemctl", "enable", "--now", "kubelet.service")
		p := m.units(nil)
		looks := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.(probes.Watcher).Watch(ctx, func() {
				select {
				case looks <- struct{}{}:
				default:
				}
			})
		}()
		awaitLook := func(reason string) {
			t.Helper()
			limit := time.After(time.Minute)
			for {
				select {
				case <-looks:
					got := look(t, p, patience)
					for got.Reason == runtime.UnitsNotAsked && t.Context().Err() == nil { // systemd is on its way back
						got = look(t, p, patience)
					}
					if got.Reason == reason {
						return
					}
				case <-limit:
					t.Fatalf("no look came to %s", reason)
				}
			}
		}
		awaitLook(health.ReasonOK)
		m.run("systemctl", "kill", "--signal=KILL", "kubelet.service")
		awaitLook(runtime.UnitFailed)
		m.run("systemctl", "daemon-reexec")
		m.run("systemctl", "start", "kubelet.service")
		awaitLook(health.ReasonOK)
		cancel()
		<-ended
	})
	t.Run("of a bus that hangs", func(t *testing.T) {
		m := machine{m.Machine, t, m.bus}
		daemon := m.run("systemctl", "show", "-P", "MainPID", "dbus.service")
		m.run("kill", "-STOP", daemon)
		got := look(t, m.units(nil), 300*time.Millisecond)
		m.run("kill", "-CONT", daemon)
		if got.Verdict != health.Unknown || got.Reason != runtime.UnitsNotAsked {
			t.Errorf("%+v", got)
		}
		m.awaitReason(m.units(nil), health.ReasonOK)
	})
}

func TestUnitsOfAMachineWithoutSystemd(t *testing.T) {
	p := runtime.Units.Build(probes.Env{}, runtime.Units.NewOptions())
	expect(t, look(t, p, patience), health.NotApplicable, health.ReasonNotApplicable, "this machine has no systemd")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	p.(probes.Watcher).Watch(ctx, func() { t.Error("a look was asked for") })
}
