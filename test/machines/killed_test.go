package machines_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/machines"
)

// ownerVariable makes this test program one that boots a machine, says so and waits to be killed.
const ownerVariable = "FETTLE_TEST_MACHINE_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		if _, err := machines.Boot(context.Background(), machines.Options{Name: "orphan"}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("up")
		select {}
	}
	os.Exit(m.Run())
}

func TestNothingOutlivesAKilledTest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "up\n" {
		t.Fatalf("the owner says %q, %v", line, err)
	}
	groups := machineGroups(t)
	if len(processesIn(groups)) == 0 {
		t.Fatalf("no process of the machine is found in %v while it runs", groups)
	}

	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed, as asked
	for deadline := time.Now().Add(20 * time.Second); len(processesIn(groups)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("processes outlived the test: %v", processesIn(groups))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), os.TempDir()) {
		t.Errorf("mounts were left behind: %v", err)
	}

	folder := filepath.Join(os.TempDir(), machineFolder(t))
	machines.ForTest(t, machines.Options{})
	for _, path := range append(groups, folder) {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there after the next machine booted: %v", path, err)
		}
	}
}

// machineGroups are the control groups of the one machine below TMPDIR, in cgroup v1 and v2 layouts.
func machineGroups(t *testing.T) (groups []string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, err := filepath.Glob(pattern + machineFolder(t))
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, found...)
	}
	return groups
}

// machineFolder is the name of the one machine's folder below TMPDIR.
func machineFolder(t *testing.T) string {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), "fettle-machine-*", "owner.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("folders of machines: %v, %v; want one", locks, err)
	}
	return filepath.Base(filepath.Dir(locks[0]))
}

// processesIn are the PIDs in control groups and all below them.
func processesIn(groups []string) (pids []string) {
	for _, group := range groups {
		_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "cgroup.procs" {
				text, _ := os.ReadFile(path) // none when the group went away
				pids = append(pids, strings.Fields(string(text))...)
			}
			return nil
		})
	}
	return pids
}
