package process_test

import (
	"bufio"
	"errors"
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

// parentVariable makes this test program the parent of TestChildrenDieWithAKilledParent.
const parentVariable = "FETTLE_TEST_PROCESS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		beParent()
	}
	os.Exit(m.Run())
}

// beParent starts children from goroutines whose threads end with them, says who they are, and waits to be killed.
func beParent() {
	const children = 8
	pids := make(chan string)
	for range children {
		go func() {
			p, err := process.Start(process.Spec{Command: []string{"sleep", "600"}})
			if err != nil {
				pids <- err.Error()
				return
			}
			pids <- strconv.Itoa(p.PID())
		}()
	}
	for range children {
		fmt.Println(<-pids)
	}
	fmt.Println("end")
	select {}
}

func TestChildrenDieWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "end"; {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatalf("the parent says: %s", lines.Text())
		}
		children = append(children, pid)
	}
	if len(children) != 8 {
		t.Fatalf("%d children, want 8", len(children))
	}
	for _, pid := range children {
		if !alive(pid) {
			t.Errorf("child %d died while its parent lived", pid)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as asked
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range children {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("child %d outlived its parent", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// alive is false for a zombie: whoever inherited it may take its time to reap it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestStopIsGracefulFirst(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := process.Start(process.Spec{
		Command: []string{"sh", "-c", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`},
		Log:     log,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return p.LogTail() == "ready\n" })
	if p.Failure() != nil {
		t.Errorf("a running process has failed: %v", p.Failure())
	}
	p.Stop(10 * time.Second)
	if p.ExitCode() != 3 || p.LogTail() != "ready\nbye\n" {
		t.Errorf("status %d, log %q", p.ExitCode(), p.LogTail())
	}
	if failure := p.Failure(); failure == nil || !strings.Contains(failure.Error(), "exit status 3") {
		t.Errorf("failure %v, want the status", failure)
	}
}

func TestStopKillsTheWholeGroupOfOneThatStays(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := process.Start(process.Spec{Command: []string{"sh", "-c", `trap '' TERM; sleep 600 & echo $!; wait; sleep 600`}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.HasSuffix(p.LogTail(), "\n") })
	grandchild, err := strconv.Atoi(strings.TrimSpace(p.LogTail()))
	if err != nil {
		t.Fatal(err)
	}
	p.Stop(50 * time.Millisecond)
	if p.ExitCode() != -1 {
		t.Errorf("status %d, want killed", p.ExitCode())
	}
	await(t, func() bool { return !alive(grandchild) })
	p.Kill() // of one that has ended does nothing
	p.Signal(syscall.SIGTERM)
}

func TestStartOfNothing(t *testing.T) {
	if _, err := process.Start(process.Spec{Command: []string{"/no/such/program"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that it does not exist", err)
	}
	if _, err := process.Start(process.Spec{}); err == nil {
		t.Error("started nothing")
	}
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not come about in 10 s")
		}
	}
}
