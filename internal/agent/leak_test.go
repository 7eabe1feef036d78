package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

// holdings are what a process may leak.
type holdings struct{ goroutines, threads, files, children int }

func held(t *testing.T) holdings {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nThreads:\t")
	threads, err := strconv.Atoi(strings.SplitN(after, "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	children := 0
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // the thread may have ended
		children += len(strings.Fields(string(list)))
	}
	return holdings{goroutines: runtime.NumGoroutine(), threads: threads, files: len(files), children: children}
}

// awaitNoMore waits until no more is held than before. Threads are kept by the runtime for later: as many more as were ever
// in the kernel at once are none.
func awaitNoMore(t *testing.T, before holdings) {
	t.Helper()
	const spareThreads = 32
	var now holdings
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		runtime.GC() // connections of checks that are gone close with them
		now = held(t)
		if now.goroutines <= before.goroutines && now.files <= before.files && now.children <= before.children && now.threads <= before.threads+spareThreads {
			t.Logf("before %+v, after %+v", before, now)
			return
		}
	}
	buffer := make([]byte, 1<<20)
	t.Fatalf("before %+v, after %+v\n%s", before, now, buffer[:runtime.Stack(buffer, true)])
}

// TestNothingLeaksOver100000Looks runs checks of every temper, and replaces some of them all the while.
func TestNothingLeaksOver100000Looks(t *testing.T) {
	const looks = 100_000
	log := slog.New(slog.DiscardHandler)
	stateDir := t.TempDir()
	kept, remembered := openMemory(stateDir, log)
	kept.apart = time.Millisecond
	var done, commands atomic.Int64
	before := held(t)

	temper := map[string]probes.Func{
		"well": func(context.Context) health.Result { return probes.OK("well") },
		"flickers": func(context.Context) health.Result {
			return []health.Result{probes.OK("well"), fatal("Odd")}[done.Load()%2]
		},
		"panics": func(context.Context) health.Result { panic("on purpose") },
		"slow":   func(ctx context.Context) health.Result { <-ctx.Done(); return fatal("Slow") },
		"hangs":  func(context.Context) health.Result { time.Sleep(250 * time.Millisecond); return probes.OK("late") },
		"reads": func(context.Context) health.Result {
			if _, err := os.ReadFile("/proc/self/stat"); err != nil {
				return fatal("Unreadable")
			}
			return probes.OK("read")
		},
		// Its command leaves a process behind, and now and then does not end in time.
		"commands": func(ctx context.Context) health.Result {
			commands.Add(1)
			if o := child.Run(ctx, child.Spec{Argv: []string{"/bin/sh", "-c", "sleep 1000 & exit 0"}}); o.Exit != 0 {
				return fatal("Failed")
			}
			return probes.OK("ran")
		},
	}
	all := func(generation int) (looks []schedule.Check, checks []health.Check) {
		for kind, probe := range temper {
			for i := range 8 {
				if (i+generation)%8 == 0 {
					continue // another one is missing in each generation
				}
				name := kind + strconv.Itoa(i)
				looks = append(looks, schedule.Check{Name: name, Probe: probe, Definition: kind, Interval: 2 * time.Millisecond, Timeout: 20 * time.Millisecond})
				checks = append(checks, health.Check{Name: name, Condition: "fettle.dev/" + kind, Definition: kind, Thresholds: health.Thresholds{Failure: 2, Success: 2}})
			}
		}
		return looks, checks
	}
	firstLooks, firstChecks := all(0)
	d := newDiagnosis(diagnosisParts{
		looks: firstLooks, checks: firstChecks, seed: "n", remembered: remembered, bootID: "boot", log: log,
		tell: func(health.Report) {}, remember: kept.note, settle: kept.settle,
	})
	enough := make(chan struct{})
	d.scheduler.Looked = func(string, time.Duration, health.Result) {
		if done.Add(1) == looks {
			close(enough)
		}
	}
	endKeeping := kept.start()
	d.begin()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { _ = d.scheduler.Run(ctx) })
	generations := 0
	for running := true; running; {
		select {
		case <-enough:
			running = false
		case <-time.After(20 * time.Millisecond):
			generations++
			again, checks := all(generations)
			d.reconfigure(again, checks, nil)
		}
	}
	cancel()
	parts.Wait()
	d.end()
	endKeeping()
	t.Logf("%d looks, %d of them with a command, %d generations of checks", done.Load(), commands.Load(), generations)
	if generations < 10 || commands.Load() < 100 {
		t.Errorf("only %d generations of checks, and %d commands", generations, commands.Load())
	}
	awaitNoMore(t, before)
}

func fatal(reason string) health.Result { return health.Result{Verdict: health.Fatal, Reason: reason} }

// TestNothingLeaksFromTheChecksThereAre looks at this machine with every kind of check, those with children and
// connections too, made anew each time as a reload makes them.
func TestNothingLeaksFromTheChecksThereAre(t *testing.T) {
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c, err := config.Parse("test.yaml", []byte(`checks:
- {name: a-mount, kind: mount, path: /, writeCheck: false}
- {name: a-command, kind: exec, command: [/bin/true]}
- {name: a-port, kind: tcp, address: "127.0.0.1:1"}
- {name: a-page, kind: http, url: "http://127.0.0.1:1/"}
- {name: a-file, kind: file, path: /etc/hostname}
`), catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	pass := func() {
		env, end := Surroundings(host, os.Getenv, log)
		defer end()
		looks, _ := catalogue.Build(c.Checks, env)
		schedule.Once(t.Context(), looks, log)
		schedule.Once(t.Context(), looks, log)
	}
	for range 5 { // what the runtime and the libraries keep for good
		pass()
	}
	before := held(t)
	for range 30 {
		pass()
	}
	awaitNoMore(t, before)
}
