package endpoints

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/test/await"
)

func TestTheStatusFileFollowsAndEverybodyMayReadIt(t *testing.T) {
	old := syscall.Umask(0o077) // as the unit sets it
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "run", "status.json")
	_, board, source := well()
	started(t, Options{StatusFile: path, Board: board, Source: source})
	says := func(want string) func() bool {
		return func() bool { s, err := ReadFile(path); return err == nil && s.Health.Status == want }
	}
	await.That(t, "the file says how the machine is", says("Unhealthy"))
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	board.Say(health.Report{Decided: true, Checks: []health.CheckState{{Name: "cni-config"}}, Summary: health.Summary{Verdict: health.OK}})
	await.That(t, "the file follows the machine", says("Healthy"))
	source.change(func(s *told) { s.config.Fault = "line 3" })
	await.That(t, "the file follows the source, of which nobody told", func() bool {
		s, err := ReadFile(path)
		return err == nil && s.Configuration.Fault == "line 3"
	})
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
}

func TestTheFileHasTheLastThereWasToSay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	agent, board, source := well()
	s := New(Options{StatusFile: path, Agent: agent, Board: board, Source: source, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	await.That(t, "the file is there", func() bool { _, err := ReadFile(path); return err == nil })
	source.change(func(s *told) { s.config.Fault = "line 3" })
	stop()
	run.Wait()
	if s, err := ReadFile(path); err != nil || s.Configuration.Fault != "line 3" {
		t.Errorf("%+v %v", s.Configuration, err)
	}
}

func TestLooksAloneAreNothingNew(t *testing.T) {
	agent, board, source := well()
	s := New(Options{Agent: agent, Board: board, Source: source})
	before := s.Status()
	board.Looked("cni-config", health.Result{Verdict: health.Fatal}, noon.Add(time.Hour), time.Second)
	if !sameSubstance(before, s.Status()) {
		t.Error("a look is something new")
	}
	if before.Health.Checks[0].LastLook.IsZero() {
		t.Error("comparing has changed what was compared")
	}
	source.cluster = &Cluster{Joined: true, Lease: Lease{State: "Failing"}}
	if sameSubstance(before, s.Status()) {
		t.Error("a lease that was lost is nothing new")
	}
}

func TestAFullDiskCostsALineAndIsMadeUpFor(t *testing.T) {
	dir := tmpfs(t, "64k")
	path := filepath.Join(dir, "status.json")
	if err := os.WriteFile(filepath.Join(dir, "fill"), bytes.Repeat([]byte("x"), 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var log heard
	socket := socketPath(t)
	_, board, source := well()
	started(t, Options{StatusFile: path, Socket: socket, Log: log.log(), Board: board, Source: source})
	await.That(t, "the log says that there is no space", func() bool { return log.count("no space left on device") > 0 })
	if code, _ := ask(t, overSocket(socket), "http://agent/status"); code != 200 {
		t.Errorf("the socket answers %d", code)
	}
	if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
		t.Fatal(err)
	}
	board.Changed()
	await.That(t, "the file is there", func() bool { _, err := ReadFile(path); return err == nil })
	await.That(t, "the log says so", func() bool { return log.count("the status file is written again") == 1 })
}

func TestAReadOnlyFileSystemCostsALine(t *testing.T) {
	dir := tmpfs(t, "64k")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	var log heard
	_, board, source := well()
	started(t, Options{StatusFile: filepath.Join(dir, "a", "status.json"), Socket: filepath.Join(dir, "b", "s"), Log: log.log(), Board: board, Source: source})
	await.That(t, "the log says so of both", func() bool { return log.count("read-only file system") == 2 })
	board.Changed()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	board.Changed()
	await.That(t, "the file is there", func() bool { _, err := ReadFile(filepath.Join(dir, "a", "status.json")); return err == nil })
	if code, _ := ask(t, overSocket(filepath.Join(dir, "b", "s")), "http://agent/healthz"); code != 200 {
		t.Errorf("the socket answers %d", code)
	}
	if n := log.count("read-only file system"); n != 2 {
		t.Errorf("it was said %d times", n)
	}
}
