package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/process"
)

func TestReapsOrphansAsFirstProcessAndEndsWhenTold(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "pause")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// unshare forks the program as PID 1 of a new namespace and passes on its exit status.
	outer, err := process.Start(process.Spec{Command: []string{"unshare", "--pid", "--fork", "--kill-child", binary}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outer.Kill)
	var pause int
	await(t, "the program to run", func() bool {
		found := children(t, outer.PID())
		if len(found) == 1 {
			pause = found[0]
			command, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pause))
			return err == nil && command == binary
		}
		return false
	})
	// The shell ends at once; its child is left to PID 1 of the namespace.
	if out, err := exec.Command("nsenter", "--target", strconv.Itoa(pause), "--pid", "sh", "-c", "sleep 1 >/dev/null 2>&1 &").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await(t, "an orphan to be its child", func() bool { return len(children(t, pause)) == 1 })
	await(t, "the orphan to be reaped", func() bool { return len(children(t, pause)) == 0 })

	if err := syscall.Kill(pause, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := outer.ExitCode(); code != 0 {
		t.Errorf("it ended with status %d", code)
	}
}

// children lists a process's children, those that have ended and were not reaped too.
func children(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, list := range lists { // one for each thread
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, child)
		}
	}
	return found
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
