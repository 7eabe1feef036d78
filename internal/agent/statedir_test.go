package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/sealing"
	"github.com/fettle-dev/fettle/test/await"
)

// lone is an agent without a cluster and with one check, whose fault stays until a reboot; it finds one while the file
// fault exists.
type lone struct {
	config config.Config
	fault  string
}

func newLone(t *testing.T, stateDir string) lone {
	t.Helper()
	l := lone{fault: filepath.Join(t.TempDir(), "fault")}
	c, err := config.Parse("test.yaml", fmt.Appendf(nil, `checks:
- {name: latch, kind: exec, command: [/bin/sh, -c, "test ! -e %s"], interval: 1s, timeout: 900ms, failureThreshold: 1, clearing: reboot, condition: example.com/LatchReady}
`, l.fault), catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	c.Checks = slices.DeleteFunc(c.Checks, func(c config.Check) bool { return c.Settings.Name != "latch" })
	c.StateDir, c.HostRoot = stateDir, "/"
	c.Endpoints = config.Endpoints{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	l.config = c
	return l
}

// live runs it until its check has a verdict, which is to be want.
func (l lone) live(t *testing.T, log *slog.Logger, want string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: l.config, NodeName: "n", Version: "v", Getenv: func(string) string { return "" }, Log: log})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	verdict := func() string {
		s, err := endpoints.Ask(ctx, l.config.Endpoints.Socket)
		if err != nil || len(s.Health.Checks) != 1 || s.Health.Checks[0].Reason == "Pending" {
			return ""
		}
		return s.Health.Checks[0].Verdict
	}
	await.That(t, "a verdict", func() bool { return verdict() != "" })
	if got := verdict(); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}

// TestAStateFolderThatTurnedReadOnly : what it holds counts for an agent that is started then, the latched fault and the key
// for sealed values, and it is said that nothing is added to it.
func TestAStateFolderThatTurnedReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("a file system of its own, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l := newLone(t, dir)
	write(t, l.fault, "")
	l.live(t, slog.New(slog.NewTextHandler(t.Output(), nil)), "fatal")
	key, err := sealing.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.fault); err != nil {
		t.Fatal(err)
	}
	remount(t, dir, unix.MS_RDONLY)
	for _, start := range []string{"first", "second"} {
		log := &sharedLog{}
		l.live(t, slog.New(slog.NewTextHandler(log, nil)), "fatal")
		if got := publicKey(dir, slog.New(slog.DiscardHandler)); got != key.PublicKey() {
			t.Errorf("%s start: the public key is %q, was %q", start, got, key.PublicKey())
		}
		if !log.holds("level=WARN", "nothing new is kept over restarts") {
			t.Errorf("%s start: it is not said:\n%s", start, log.String())
		}
	}
}

// TestAStateFolderThatHangs : an agent starts from what it holds, tells of what it finds, and ends.
func TestAStateFolderThatHangs(t *testing.T) {
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	write(t, image, "")
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	command := func(words ...string) {
		t.Helper()
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q, which takes root: %v: %s", words, err, out)
		}
	}
	command("mkfs.ext4", "-q", image)
	command("mount", "-o", "loop", image, dir)
	t.Cleanup(func() { command("umount", "--lazy", dir) })
	latched, well := newLone(t, filepath.Join(dir, "latched")), newLone(t, filepath.Join(dir, "well"))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	write(t, latched.fault, "")
	latched.live(t, log, "fatal")
	well.live(t, log, "ok")
	if err := os.Remove(latched.fault); err != nil {
		t.Fatal(err)
	}
	write(t, well.fault, "")

	command("fsfreeze", "-f", dir)
	t.Cleanup(func() { command("fsfreeze", "-u", dir) })
	latched.live(t, log, "fatal")
	well.live(t, log, "fatal")
}

// holds reports whether a line holds all of the words.
func (l *sharedLog) holds(words ...string) bool {
	return slices.ContainsFunc(strings.Split(l.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}
