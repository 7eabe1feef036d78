package custom_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/custom"
	"github.com/fettle-dev/fettle/test/await"
)

// long is a deadline that no test is meant to reach.
const long = 2 * time.Minute

// build makes a probe of a kind, with options changed from their defaults.
func build[Options any](t *testing.T, kind probes.Kind, root string, change func(*Options)) probes.Probe {
	t.Helper()
	host, err := hostfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	options := kind.NewOptions().(*Options)
	change(options)
	return kind.Build(probes.Env{Host: host}, options)
}

func look(t *testing.T, p probes.Probe) health.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	return p.Run(ctx)
}

func command(t *testing.T, argv ...string) probes.Probe {
	t.Helper()
	return build(t, custom.Exec, "/", func(o *custom.ExecOptions) { o.Command = argv })
}

func TestWhatCommandsSay(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		argv []string
		want health.Result
	}{
		{name: "well, in words", argv: sh("echo '2 of 2 disks' ; echo noise >&2"), want: health.Result{Verdict: health.OK, Reason: "OK", Message: "2 of 2 disks"}},
		{name: "well, without words", argv: sh("echo noise >&2"), want: health.Result{Verdict: health.OK, Reason: "OK", Message: "/bin/sh finds nothing wrong"}},
		{name: "a problem", argv: sh("printf 'disk 2\\n\\tis   gone\\n'; exit 1"), want: health.Result{Verdict: health.Fatal, Reason: custom.ExecFailed, Message: "disk 2 is gone"}},
		{name: "a problem, on standard error", argv: sh("echo gone >&2; exit 1"), want: health.Result{Verdict: health.Fatal, Reason: custom.ExecFailed, Message: "gone"}},
		{name: "a problem, after many blank lines", argv: sh("head -c 70000 /dev/zero | tr '\\0' '\\n'; printf '\\0 \\tdisk 2 is gone\\n'; exit 1"), want: health.Result{Verdict: health.Fatal, Reason: custom.ExecFailed, Message: "disk 2 is gone"}},
		{name: "a problem, on standard error after blank output", argv: sh("echo; echo '  '; echo gone >&2; exit 1"), want: health.Result{Verdict: health.Fatal, Reason: custom.ExecFailed, Message: "gone"}},
		{name: "a problem, without words", argv: sh("exit 1"), want: health.Result{Verdict: health.Fatal, Reason: custom.ExecFailed, Message: "/bin/sh ended with exit status 1"}},
		{name: "cannot tell", argv: sh("echo no tool; exit 2"), want: health.Result{Verdict: health.Unknown, Reason: custom.ExecUnknown, Message: "no tool"}},
		{name: "cannot tell, without words", argv: sh("exit 254"), want: health.Result{Verdict: health.Unknown, Reason: custom.ExecUnknown, Message: "/bin/sh ended with exit status 254"}},
		{name: "crashed", argv: sh("kill -SEGV $$"), want: health.Result{Verdict: health.Unknown, Reason: custom.ExecUnknown, Message: "/bin/sh ended by SIGSEGV"}},
		{name: "killed", argv: sh("echo so far; kill -KILL $$"), want: health.Result{Verdict: health.Unknown, Reason: custom.ExecKilled, Message: "/bin/sh was killed"}},
		{name: "flooding", argv: []string{"yes"}, want: health.Result{Verdict: health.Unknown, Reason: custom.ExecFlooded, Message: "yes wrote without end and was killed"}},
		{name: "missing", argv: []string{dir + "/missing"}, want: health.Result{Verdict: health.Unknown, Reason: custom.ExecNotRunnable, Message: "execute " + dir + "/missing: no such file or directory"}},
		{name: "not executable", argv: []string{dir + "/plain"}, want: health.Result{Verdict: health.Unknown, Reason: custom.ExecNotRunnable, Message: "execute " + dir + "/plain: permission denied"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := look(t, command(t, tc.argv...)); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestLongOutputIsCut(t *testing.T) {
	got := look(t, command(t, sh("head -c 100000 /dev/zero | tr '\\0' x; exit 1")...))
	if got.Reason != custom.ExecFailed || len(got.Message) > health.MaxMessage || !strings.HasPrefix(got.Message, "xxxx") {
		t.Errorf("%s, %d bytes", got.Reason, len(got.Message))
	}
}

func TestEnvironmentFolderAndOwnReason(t *testing.T) {
	dir := t.TempDir()
	p := build(t, custom.Exec, "/", func(o *custom.ExecOptions) {
		o.Command, o.Env, o.Dir, o.Reason = sh(`echo "$LEVEL in $(pwd)"; exit 1`), []string{"LEVEL=a b"}, dir, "RaidDegraded"
	})
	if got, want := look(t, p), (health.Result{Verdict: health.Fatal, Reason: "RaidDegraded", Message: "a b in " + dir}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	other := build(t, custom.Exec, "/", func(o *custom.ExecOptions) { o.Command, o.Reason = sh("exit 3"), "RaidDegraded" })
	if got := look(t, other); got.Reason != custom.ExecUnknown {
		t.Errorf("%+v", got)
	}
}

func TestCommandThatDoesNotEnd(t *testing.T) {
	word := filepath.Join(t.TempDir(), "up")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan health.Result)
	p := command(t, sh(": > "+word+"; sleep 1000")...)
	go func() { ended <- p.Run(ctx) }()
	await.That(t, "the command runs", func() bool { _, err := os.Stat(word); return err == nil })
	cancel()
	if got := <-ended; got.Verdict != health.Unknown || got.Reason != health.ReasonTimeout {
		t.Errorf("%+v", got)
	}
}

// The command moves into a memory cgroup of its own that gives it 16 MiB, and takes more.
func TestCommandThatTheKernelKillsForMemory(t *testing.T) {
	group, limit := "/sys/fs/cgroup/memory/fettle-test-"+fmt.Sprint(os.Getpid()), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		group, limit = "/sys/fs/cgroup/fettle-test-"+fmt.Sprint(os.Getpid()), "memory.max"
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		await.That(t, "the cgroup is removed", func() bool { return os.Remove(group) == nil })
	})
	if err := os.WriteFile(filepath.Join(group, limit), []byte("16777216"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := look(t, command(t, sh("echo $$ > "+group+"/cgroup.procs && exec tail /dev/zero")...))
	if got.Reason != custom.ExecKilled {
		t.Errorf("%+v", got)
	}
}
