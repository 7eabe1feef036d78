package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/test/await"
)

// latchedAt is what an agent remembers whose check "a" was latched for the n-th reason.
func latchedAt(n int) health.Snapshot {
	e := health.NewEngine([]health.Check{{Name: "a", Condition: "x/A", Clearing: health.ClearByReboot}})
	e.Restore(health.Snapshot{}, "boot", time.Unix(0, 0))
	e.Observe("a", health.Result{Verdict: health.Fatal, Reason: "Broken", Message: strconv.Itoa(n)}, time.Unix(int64(n), 0))
	return e.Snapshot()
}

func quickMemory(dir string, log *slog.Logger) (*memory, health.Snapshot) {
	m, remembered := openMemory(dir, log)
	m.apart, m.againAfter = time.Millisecond, 10*time.Millisecond
	return m, remembered
}

func numberIn(s health.Snapshot) int {
	if len(s.Checks) != 1 || s.Checks[0].Latch == nil {
		return -1
	}
	n, err := strconv.Atoi(s.Checks[0].Latch.Message)
	if err != nil {
		return -1
	}
	return n
}

// A process of this test binary that notes one snapshot after the other, and says on its output which one is saved.
func init() {
	if dir := os.Getenv("FETTLE_TEST_MEMORY"); dir != "" {
		m, remembered := quickMemory(dir, slog.New(slog.DiscardHandler))
		for n := max(numberIn(remembered), 0) + 1; ; n++ {
			m.note(latchedAt(n), false)
			m.save()
			if m.fault != "" {
				fmt.Println(m.fault)
				os.Exit(1)
			}
			fmt.Println(n)
		}
	}
}

func TestMemorySurvivesKillsAtAnyPoint(t *testing.T) {
	dir := t.TempDir()
	saved := 0
	for round := range 50 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "FETTLE_TEST_MEMORY="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// Killed while it goes on saving, after one save more in each round than in the one before.
		lines := bufio.NewScanner(out)
		for line := 0; line <= round%17 && lines.Scan(); line++ {
			if saved, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(round*37) * time.Microsecond) // spreads the kills over the steps of a save
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it was killed
			if saved, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		_ = child.Wait() // killed
		var log bytes.Buffer
		_, remembered := openMemory(dir, slog.New(slog.NewTextHandler(&log, nil)))
		if got := numberIn(remembered); got < saved || got > saved+1 || saved == 0 {
			t.Fatalf("round %d: %d was saved, and %d is remembered: %+v\n%s", round, saved, got, remembered, log.String())
		}
	}
}

func TestMemoryStartsHonestlyFromWhatItCannotUse(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave func(t *testing.T, path string)
		aside bool
	}{
		{name: "nothing", leave: func(*testing.T, string) {}},
		{name: "a part", leave: func(t *testing.T, path string) { write(t, path, `{"format":1,"sha256":"`) }, aside: true},
		{name: "nothing at all in it", leave: func(t *testing.T, path string) { write(t, path, "") }, aside: true},
		{name: "a newer format", leave: func(t *testing.T, path string) {
			if err := statefile.Write(path, memoryFormat+1, map[string]string{"new": "form"}); err != nil {
				t.Fatal(err)
			}
		}, aside: true},
		{name: "another shape", leave: func(t *testing.T, path string) {
			if err := statefile.Write(path, memoryFormat, []int{1}); err != nil {
				t.Fatal(err)
			}
		}, aside: true},
		{name: "a folder in its place", leave: func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, aside: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "health.json")
			tc.leave(t, path)
			var log bytes.Buffer
			m, remembered := quickMemory(dir, slog.New(slog.NewTextHandler(&log, nil)))
			if len(remembered.Checks) != 0 || remembered.BootID != "" {
				t.Errorf("remembers %+v", remembered)
			}
			if _, err := os.Stat(path + ".damaged"); (err == nil) != tc.aside || (log.Len() > 0) != tc.aside {
				t.Errorf("moved aside: %v; log: %s", err, log.String())
			}
			m.note(latchedAt(7), false)
			m.save()
			if _, again := openMemory(dir, slog.New(slog.DiscardHandler)); numberIn(again) != 7 {
				t.Errorf("afterwards it remembers %+v", again)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A folder that cannot be written to is said once, costs nothing else, and once it can be written to everything is kept.
func TestMemoryWorksOnWithoutADiskToWriteTo(t *testing.T) {
	for _, tc := range []struct {
		name        string
		spoil, mend func(t *testing.T, dir string)
	}{
		{
			name: "full",
			spoil: func(t *testing.T, dir string) {
				f, err := os.Create(filepath.Join(dir, "filler"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				for piece := make([]byte, 4096); err == nil; _, err = f.Write(piece) {
				}
			},
			mend: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name:  "read-only",
			spoil: func(t *testing.T, dir string) { remount(t, dir, unix.MS_RDONLY) },
			mend:  func(t *testing.T, dir string) { remount(t, dir, 0) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
				t.Fatalf("a file system of its own, which takes root: %v", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			log := &sharedLog{}
			m, _ := quickMemory(dir, slog.New(slog.NewTextHandler(log, nil)))
			end := m.start()
			m.note(latchedAt(1), false)
			await.That(t, "the first save", func() bool { return rememberedIn(dir) == 1 })
			tc.spoil(t, dir)
			m.note(latchedAt(2), false)
			await.That(t, "the log says that nothing is kept", func() bool { return strings.Contains(log.String(), "cannot be kept") })
			for n := 3; n < 20; n++ {
				m.note(latchedAt(n), false)
				time.Sleep(2 * time.Millisecond)
			}
			if got := rememberedIn(dir); got != 1 {
				t.Errorf("a file that could not be replaced says %d", got)
			}
			tc.mend(t, dir)
			await.That(t, "what was noted meanwhile is saved, without another note", func() bool { return rememberedIn(dir) == 19 })
			end()
			if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "is kept over a restart again") {
				t.Errorf("%d lines:\n%s", n, log.String())
			}
		})
	}
}

// sharedLog is written to by one goroutine and read by another.
type sharedLog struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "size=64k"); err != nil {
		t.Fatal(err)
	}
}

func rememberedIn(dir string) int {
	var s health.Snapshot
	if err := statefile.Read(filepath.Join(dir, "health.json"), memoryFormat, &s); err != nil {
		return -1
	}
	return numberIn(s)
}

func TestMemoryWritesOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "health.json")
	m, _ := quickMemory(dir, slog.New(slog.DiscardHandler))
	m.note(latchedAt(1), false)
	m.save()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	m.note(latchedAt(1), false)
	m.save()
	m, remembered := quickMemory(dir, slog.New(slog.DiscardHandler))
	m.note(remembered, false)
	m.save()
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same content was written again (%v)", err)
	}
	m.note(latchedAt(2), false)
	m.save()
	if got := rememberedIn(dir); got != 2 {
		t.Errorf("remembers %d", got)
	}
}

func TestMemoryWithoutAFolderKeepsNothing(t *testing.T) {
	m, remembered := openMemory("", slog.New(slog.NewTextHandler(t.Output(), nil)))
	m.note(latchedAt(1), false)
	m.save()
	if len(remembered.Checks) != 0 {
		t.Errorf("%+v", remembered)
	}
}

func TestWhatIsSaidIsSavedAtOnce(t *testing.T) {
	dir := t.TempDir()
	m, _ := openMemory(dir, slog.New(slog.DiscardHandler))
	m.apart = time.Hour
	end := m.start()
	for n := 1; n <= 3; n++ {
		m.note(latchedAt(n), true)
		await.That(t, "the file to hold it", func() bool { return rememberedIn(dir) == n })
	}
	end()
}

// A fault is in the file when it is told, so that no crash takes back what was told.
func TestAFaultIsKeptBeforeItIsTold(t *testing.T) {
	dir := t.TempDir()
	m, _ := openMemory(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	m.patience = time.Hour
	defer m.start()()
	told := 0
	d := newDiagnosis(diagnosisParts{
		checks: []health.Check{{Name: "a", Condition: "x/A", Clearing: health.ClearByReboot, Thresholds: health.Thresholds{Failure: 1, Success: 1}}},
		bootID: "boot", log: slog.New(slog.DiscardHandler), remember: m.note, settle: m.settle,
		tell: func(r health.Report) {
			if r.Checks[0].Verdict != health.Fatal {
				return
			}
			told++
			if want, got := r.Checks[0].Message, strconv.Itoa(rememberedIn(dir)); got != want {
				t.Errorf("fault %s was told when fault %s was kept", want, got)
			}
		},
	})
	d.begin()
	defer d.end()
	d.observe("a", fine, time.Now())
	for n := range 20 {
		d.observe("a", health.Result{Verdict: health.Fatal, Reason: fmt.Sprint("Broken", n), Message: strconv.Itoa(n)}, time.Now())
	}
	if told == 0 {
		t.Error("no fault was told")
	}
}

// A disk that hangs holds up one fault, for a moment, and is waited for again once it has answered.
func TestAFaultWaitsForNoDiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &sharedLog{}
		m, _ := openMemory(t.TempDir(), slog.New(slog.NewTextHandler(log, nil)))
		note := func(n int, want time.Duration) { // nothing saves meanwhile
			t.Helper()
			m.note(latchedAt(n), true)
			begun := time.Now()
			if m.settle(); time.Since(begun) != want {
				t.Errorf("fault %d waited for %s, want %s", n, time.Since(begun), want)
			}
		}
		note(1, saveFirst)
		note(2, 0)
		if n := strings.Count(log.String(), "told before it is kept"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
		m.save()
		note(3, saveFirst)
	})
}
