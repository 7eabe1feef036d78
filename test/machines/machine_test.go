package machines_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/machines"
)

func TestMachineRebootsForReal(t *testing.T) {
	began := time.Now()
	m := machines.ForTest(t, machines.Options{
		Name:  "machine-1",
		Files: []machines.File{{Path: "/etc/fettle/made-before-boot", Text: "yes"}},
	})
	t.Logf("up after %v", time.Since(began).Round(time.Millisecond))

	if out, err := m.Exec(t.Context(), "hostname"); err != nil || out != "machine-1\n" {
		t.Errorf("host name %q, %v", out, err)
	}
	if out, err := m.ReadFile(t.Context(), "/etc/fettle/made-before-boot"); err != nil || out != "yes" {
		t.Errorf("file made before the boot: %q, %v", out, err)
	}
	before, err := m.BootID()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(t.Context(), "/run/volatile", "x", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(t.Context(), "/var/lib/kept", "x", 0o600); err != nil {
		t.Fatal(err)
	}

	began = time.Now()
	after, err := m.Reboot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rebooted in %v", time.Since(began).Round(time.Millisecond))
	if after == before {
		t.Errorf("the boot ID is still %s", before)
	}
	if out, err := m.Exec(t.Context(), "stat", "/run/volatile"); err == nil {
		t.Errorf("/run survived the reboot: %s", out)
	}
	if out, err := m.ReadFile(t.Context(), "/var/lib/kept"); err != nil || out != "x" {
		t.Errorf("/var did not survive the reboot: %q, %v", out, err)
	}
	boots, err := m.Exec(t.Context(), "journalctl", "--list-boots", "--no-pager", "--quiet")
	if err != nil || strings.Count(boots, "\n") != 2 {
		t.Errorf("journal has boots:\n%s%v", boots, err)
	}
}

func TestUnitRunsAndItsJournalIsRead(t *testing.T) {
	m := machines.ForTest(t, machines.Options{})
	if _, err := m.Exec(t.Context(), "systemd-run", "--wait", "--unit=example", "sh", "-c", "echo said by the unit; exit 7"); err == nil {
		t.Error("a unit that ends with 7 succeeded")
	}
	if out, err := m.Journal(t.Context(), "example"); err != nil || !strings.Contains(out, "said by the unit") {
		t.Errorf("journal %q, %v", out, err)
	}
}

func TestPowerCutAndPowerOff(t *testing.T) {
	m := machines.ForTest(t, machines.Options{})
	first, err := m.BootID()
	if err != nil {
		t.Fatal(err)
	}

	m.Kill()
	if _, err := m.Exec(t.Context(), "true"); err == nil {
		t.Error("a command ran in a killed machine")
	}
	if err := m.WriteFile(t.Context(), "/etc/written-while-off", "x", 0o644); err != nil {
		t.Error(err)
	}
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := m.ReadFile(t.Context(), "/etc/written-while-off"); err != nil || out != "x" {
		t.Errorf("file written while off: %q, %v", out, err)
	}
	second, err := m.BootID()
	if err != nil || second == first {
		t.Errorf("boot ID %s after %s, %v", second, first, err)
	}

	if err := m.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOn(t.Context()); err == nil {
		t.Error("powered on what is on")
	}
}

func TestMachinesDoNotTouchEachOther(t *testing.T) {
	const count = 3
	all := make([]*machines.Machine, count)
	var booting sync.WaitGroup
	began := time.Now()
	for i := range count {
		booting.Go(func() {
			m, err := machines.Boot(t.Context(), machines.Options{Name: "same-name"})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() {
				if err := m.Remove(); err != nil {
					t.Error(err)
				}
			})
			all[i] = m
		})
	}
	booting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d machines up after %v", count, time.Since(began).Round(time.Millisecond))

	ids := map[string]bool{}
	for _, m := range all {
		if _, err := m.Exec(t.Context(), "systemd-run", "--unit=same", "sleep", "infinity"); err != nil {
			t.Fatal(err)
		}
		id, err := m.ReadFile(t.Context(), "/etc/machine-id")
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != count {
		t.Errorf("%d machine IDs, want %d", len(ids), count)
	}
	if err := all[0].WriteFile(t.Context(), "/etc/mine", "", 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Exec(t.Context(), "systemctl", "stop", "same"); err != nil {
		t.Fatal(err)
	}
	all[1].Kill()
	if out, err := all[2].Exec(t.Context(), "systemctl", "is-active", "same"); err != nil {
		t.Errorf("stopping a unit here and killing a machine there stopped it: %s", out)
	}
	if _, err := all[2].ReadFile(t.Context(), "/etc/mine"); err == nil {
		t.Error("a file of one machine is in another")
	}
}
