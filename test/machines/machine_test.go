package machines_test

import (
	"net"
	"os"
	"path/filepath"
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

// The API server of a test listens on the loopback of the test machine alone.
func TestMachineReachesTheTestsLoopback(t *testing.T) {
	m := machines.ForTest(t, machines.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exec(t.Context(), "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port); err != nil {
		t.Error(err)
	}
}

func TestBindsAndFiles(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho ran $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := machines.ForTest(t, machines.Options{Binds: []machines.Bind{
		{Source: program, Target: "/usr/local/bin/bound"},
		{Source: dir, Target: "/mnt/shared", Writable: true},
	}})
	if out, err := m.Exec(t.Context(), "bound", "there"); err != nil || out != "ran there\n" {
		t.Errorf("the bound program: %q, %v", out, err)
	}
	if _, err := m.Exec(t.Context(), "sh", "-c", "echo > /usr/local/bin/bound"); err == nil {
		t.Error("the machine wrote to a file of the test machine")
	}
	if _, err := m.Exec(t.Context(), "touch", "/mnt/shared/from-inside"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "from-inside")); err != nil {
		t.Error(err)
	}

	if err := m.CopyIn(t.Context(), program, "/opt/copied/program"); err != nil {
		t.Fatal(err)
	}
	if out, err := m.Exec(t.Context(), "/opt/copied/program", "too"); err != nil || out != "ran too\n" {
		t.Errorf("the copied program: %q, %v", out, err)
	}
	// An absolute link must lead to the machine's file, not to the test machine's.
	if _, err := m.Exec(t.Context(), "ln", "-s", "/etc/hostname", "/root/link"); err != nil {
		t.Fatal(err)
	}
	if out, err := m.ReadFile(t.Context(), "/root/link"); err != nil || out != "machine\n" {
		t.Errorf("through a link: %q, %v", out, err)
	}
	if err := m.RemoveFile(t.Context(), "/opt/copied"); err != nil {
		t.Error(err)
	}
	if _, err := m.ReadFile(t.Context(), "/opt/copied/program"); err == nil {
		t.Error("read a removed file")
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
