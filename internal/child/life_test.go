package child_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/test/await"
)

func itoa(n int) string { return strconv.Itoa(n) }

// agentName is a process that runs one command until it is told to end, like an agent that does nothing else.
const agentName = "test-agent"

func init() {
	child.Early(agentName, func() int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := child.Adopt(); err != nil {
			return 1
		}
		child.Run(ctx, child.Spec{Argv: os.Args[1:]})
		return 0
	})
}

func TestCommandDoesNotOutliveTheAgent(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		up           int
		signal       syscall.Signal
	}{
		{name: "that is told to end", script: "trap '' TERM; %S & setsid -f %S; sleep 1007", up: 2, signal: syscall.SIGTERM},
		{name: "that is killed", script: "echo up >> %W; while :; do sleep 0.01; done # %W", up: 1, signal: syscall.SIGKILL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sleep, word := sleeper(t)
			agent := exec.Command("/proc/self/exe")
			agent.Args = []string{agentName, "/bin/sh", "-c", strings.NewReplacer("%S", sleep, "%W", word).Replace(tc.script)}
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			await.That(t, "the command is up", func() bool { return upTimes(word) == tc.up })
			if err := agent.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			_ = agent.Wait()
			await.That(t, "the command died with its agent", func() bool { return len(marked(t, word)) == 0 })
		})
	}
}

var runs = flag.Int("runs", 300, "how many commands the leak test runs")

// count is what could leak.
type count struct{ goroutines, threads, files, children int }

func counted(t *testing.T) count {
	t.Helper()
	entries := func(dir string) int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	return count{goroutines: runtime.NumGoroutine(), threads: entries("/proc/self/task"), files: entries("/proc/self/fd"), children: childCount(t)}
}

func TestManyCommandsLeakNothing(t *testing.T) {
	scripts := []string{"echo fine", "exit 1", "kill -9 $$", "sleep 1005 & exit 0", "setsid -f sleep 1006", "exec yes"}
	batch := func(n int) {
		done := make(chan struct{})
		for worker := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for i := worker; i < n; i += 4 {
					if o := child.Run(t.Context(), sh(scripts[i%len(scripts)])); o.Err != nil || o.Hung || o.TimedOut {
						t.Errorf("%s: %+v", scripts[i%len(scripts)], o)
					}
				}
			}()
		}
		for range 4 {
			<-done
		}
	}
	batch(100)
	before := counted(t)
	batch(*runs)
	awaitNone(t, "sleep\x001006")
	after := counted(t)
	t.Logf("before %+v, after %d commands %+v", before, *runs, after)
	// Threads are never given back, and how many it takes at once is chance; 4 workers need 8 at most.
	if after.goroutines > before.goroutines || after.files > before.files || after.children > 0 || after.threads > before.threads+16 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
