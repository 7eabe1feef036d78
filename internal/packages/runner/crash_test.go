package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/image"
	"github.com/fettle-dev/fettle/internal/packages/runner"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/test/await"
)

// asProcess is the variable that makes the test's program a runner, of what it holds as JSON.
const asProcess = "FETTLE_TEST_RUNNER"

// instructions are for a runner in a process of its own.
type instructions struct {
	Dir, State, Images, Bus, Boot, Done string
	Work                                runner.Work
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asProcess); text != "" {
		var i instructions
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			panic(err)
		}
		i.run()
		return
	}
	os.Exit(m.Run())
}

// run carries the work out and makes the file Done when it is complete.
func (i instructions) run() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	fail := func(err error) {
		if err != nil {
			log.Error("cannot go on", "error", err)
			os.Exit(1)
		}
	}
	host, err := hostfs.Open(i.Dir)
	fail(err)
	images, err := image.Open(i.Images, image.Limits{Bytes: 1 << 30, Entries: 1000})
	fail(err)
	began := time.Now()
	r, err := runner.New(runner.Options{
		Host: host, Units: systemd.NewBus(i.Bus), State: i.State, Step: filepath.Join(i.State, "fettle-step"), Root: format.DefaultRoot, Logs: format.DefaultLogs,
		Images: images, Boot: i.Boot, Uptime: func() time.Duration { return time.Hour + time.Since(began) }, Log: log,
	})
	fail(err)
	r.Want(i.Work)
	go func() {
		for !r.Progress(i.Work.NodeWright).Complete {
			time.Sleep(10 * time.Millisecond)
		}
		fail(os.WriteFile(i.Done, nil, 0o600))
	}()
	fail(r.Start(context.Background()))
}

// crashes is how often runners are killed: FETTLE_CRASHES, or few.
func crashes(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FETTLE_CRASHES")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A runner that is killed at any time, again and again, comes to what one comes to that is not: every step has run once,
// since those that ran when it was killed went on.
func TestRunnersThatAreKilledRunEveryStepOnce(t *testing.T) {
	h := newHost(t)
	file := h.offer(t, scripts(t, "1.1.1"))
	want := []string{"apply", "apply_check", "config", "config_check", "post_interrupt", "post_interrupt_check"}
	boot, err := h.BootID()
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for round := 0; killed < crashes(t); round++ {
		w := work(file, stages.Package{Interrupt: &stages.Disruption{Type: stages.Noop}}, map[string]string{"apply.sh": "sleep 0.05"})
		w.NodeWright, w.Generation = "round"+strconv.Itoa(round), int64(round)+1
		if err := os.RemoveAll(filepath.Join(h.dir, format.DefaultRoot, "ran")); err != nil {
			t.Fatal(err)
		}
		i := instructions{
			Dir: h.dir, State: h.state, Images: h.images, Bus: filepath.Join(filepath.Dir(h.dir), "bus", "system_bus_socket"), Boot: boot,
			Done: filepath.Join(t.TempDir(), "done"), Work: w,
		}
		text, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		done := func() bool { _, err := os.Stat(i.Done); return err == nil }
		for !done() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), asProcess+"="+string(text))
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Most are killed while there is something to do; the last of the round is left to finish.
			patience := time.Duration(rand.IntN(1500)) * time.Millisecond
			if killed >= crashes(t) {
				patience = 2 * time.Minute
			}
			deadline := time.Now().Add(patience)
			for time.Now().Before(deadline) && !done() {
				time.Sleep(5 * time.Millisecond)
			}
			if !done() {
				killed++
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
		}
		if got := h.ran(t); !slices.Equal(got, want) {
			t.Fatalf("round %d, %d killed: ran %q", round, killed, got)
		}
		await.That(t, "nothing is left of attempts", func() bool {
			left, err := filepath.Glob(filepath.Join(h.state, "steps", "*"))
			if err != nil {
				t.Fatal(err)
			}
			if len(left) > 0 { // the last was killed before it had cleaned up; the next does
				_, stop := h.start(t)
				stop()
			}
			return len(left) == 0
		})
	}
}
