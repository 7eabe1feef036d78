package child_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/test/await"
)

// long is a deadline that no test is meant to reach.
const long = 2 * time.Minute

func TestMain(m *testing.M) {
	if err := child.Adopt(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func run(t *testing.T, s child.Spec) child.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	o := child.Run(ctx, s)
	if o.TimedOut {
		t.Fatalf("%q did not end", s.Argv)
	}
	return o
}

func sh(script string) child.Spec { return child.Spec{Argv: []string{"/bin/sh", "-c", script}} }

func TestHowCommandsEnd(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		exit         int
		signal       syscall.Signal
		stdout       string
		stderr       string
	}{
		{name: "well", script: "echo fine", stdout: "fine\n"},
		{name: "with a status", script: "echo no >&2; exit 3", exit: 3, stderr: "no\n"},
		{name: "with the status of a command that could not be executed", script: "exit 127", exit: 127},
		{name: "after more blanks than are kept", script: "head -c 10000 /dev/zero | tr '\\0' '\\n'; echo said; echo", stdout: "said\n\n"},
		{name: "with blanks alone", script: "echo; echo"},
		{name: "by a signal", script: "kill -TERM $$", exit: -1, signal: syscall.SIGTERM},
		{name: "killed by somebody else, as by the kernel for memory", script: "kill -KILL $$", exit: -1, signal: syscall.SIGKILL},
		{name: "leaving something behind that holds the output open", script: "sleep 1000 & echo said", stdout: "said\n"},
		{name: "with an environment of its own", script: "env | sort", stdout: "HOME=/\nLANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/\n"},
		{name: "first to be killed for memory", script: "cat /proc/self/oom_score_adj", stdout: "1000\n"},
		{name: "without any file of ours", script: "ls /proc/$$/fd", stdout: "0\n1\n2\n"},
		{name: "leading a session", script: `test "$(cut -d" " -f6 /proc/$$/stat)" = $$`},
		{name: "with nothing to read", script: "cat"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("SECRET", "of the agent")
			o := run(t, sh(tc.script))
			if o.Err != nil || o.Exit != tc.exit || o.Signal != tc.signal || o.Flooded || o.Hung {
				t.Errorf("%+v", o)
			}
			if string(o.Stdout) != tc.stdout || string(o.Stderr) != tc.stderr {
				t.Errorf("stdout %q, stderr %q", o.Stdout, o.Stderr)
			}
		})
	}
}

func TestEnvironmentAndFolderOfACommand(t *testing.T) {
	dir := t.TempDir()
	o := run(t, child.Spec{Argv: []string{"sh", "-c", `echo "$A $HOME"; pwd`}, Env: []string{"A=first", "HOME=/there", "A=b c"}, Dir: dir})
	if want := "b c /there\n" + dir + "\n"; string(o.Stdout) != want || o.Err != nil {
		t.Errorf("%q, %v", o.Stdout, o.Err)
	}
}

func TestCommandsThatCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noexec := filepath.Join(dir, "noexec")
	if err := errors.Join(os.Mkdir(noexec, 0o755), unix.Mount("tmpfs", noexec, "tmpfs", unix.MS_NOEXEC, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(noexec, 0); err != nil {
			t.Error(err)
		}
	})
	alien := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\x7f" + strings.Repeat("\x00", 200) // of no known machine
	for _, tc := range []struct {
		name string
		spec child.Spec
		path string
		want syscall.Errno
	}{
		{name: "missing", spec: child.Spec{Argv: []string{dir + "/missing"}}, path: dir + "/missing", want: syscall.ENOENT},
		{name: "not in PATH", spec: child.Spec{Argv: []string{"no-such-command"}}, path: "no-such-command", want: syscall.ENOENT},
		{name: "not executable", spec: child.Spec{Argv: []string{file("plain", "#!/bin/sh\n", 0o644)}}, path: dir + "/plain", want: syscall.EACCES},
		{name: "a folder", spec: child.Spec{Argv: []string{dir}}, path: dir, want: syscall.EISDIR},
		{name: "of another machine", spec: child.Spec{Argv: []string{file("alien", alien, 0o755)}}, path: dir + "/alien", want: syscall.ENOEXEC},
		{name: "a script that does not name its interpreter", spec: child.Spec{Argv: []string{file("bare", "exit 0\n", 0o755)}}, path: dir + "/bare", want: syscall.ENOEXEC},
		{name: "a script whose interpreter is missing", spec: child.Spec{Argv: []string{file("lost", "#!/no/such/shell\n", 0o755)}}, path: dir + "/lost", want: syscall.ENOENT},
		{name: "on a mount that forbids it", spec: child.Spec{Argv: []string{file("noexec/x", "#!/bin/sh\n", 0o755)}}, path: dir + "/noexec/x", want: syscall.EACCES},
		{name: "in a folder that is missing", spec: child.Spec{Argv: []string{"/bin/true"}, Dir: dir + "/gone"}, path: dir + "/gone", want: syscall.ENOENT},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := run(t, tc.spec)
			var at *fs.PathError
			if !errors.As(o.Err, &at) || at.Path != tc.path || !errors.Is(o.Err, tc.want) {
				t.Errorf("%v, want %s: %v", o.Err, tc.path, tc.want)
			}
		})
	}
	if o := child.Run(t.Context(), child.Spec{}); o.Err == nil {
		t.Error("no command at all was run")
	}
}

// marked finds living processes that have a word among their arguments.
func marked(t *testing.T, word string) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), word) && strings.Trim(e.Name(), "0123456789") == "" {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// sleeper is a sleep that nothing else on the machine has.
func sleeper(t *testing.T) (command, word string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "sleeper-*")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return "sh -c 'echo up >> $0; sleep 1001' " + f.Name(), f.Name()
}

// upTimes is how many sleepers have come up.
func upTimes(word string) int {
	content, _ := os.ReadFile(word)
	return strings.Count(string(content), "up")
}

func TestNothingOutlivesACommand(t *testing.T) {
	sleep, word := sleeper(t)
	wait := "\nwhile [ \"$(grep -c up " + word + ")\" != %N ]; do sleep 0.01; done"
	for _, tc := range []struct {
		name, script, n string
	}{
		{name: "in the background", script: sleep + " & " + sleep + " &", n: "2"},
		{name: "forked away", script: "(" + sleep + " &) ; (( " + sleep + " &) &)", n: "2"},
		{name: "in a session of its own", script: "setsid " + sleep + " & setsid -f " + sleep, n: "2"},
		{name: "as a family in sessions of their own", script: "setsid -f sh -c \"setsid " + strings.ReplaceAll(sleep, "$", `\$`) + " & setsid -f " + strings.ReplaceAll(sleep, "$", `\$`) + "; wait\"", n: "2"},
		{name: "deaf to signals", script: "trap '' TERM INT HUP; " + sleep + " &", n: "1"},
	} {
		for _, end := range []struct {
			name, script string
			at           func() bool
		}{
			{name: "that ends by itself", script: ""},
			{name: "that is ended", script: "\nsleep 1002"},
		} {
			t.Run(tc.name+", of a command "+end.name, func(t *testing.T) {
				if err := os.Truncate(word, 0); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), long)
				defer cancel()
				if end.script != "" {
					go func() {
						for upTimes(word) < int(tc.n[0]-'0') && ctx.Err() == nil {
							time.Sleep(5 * time.Millisecond)
						}
						cancel()
					}()
				}
				o := child.Run(ctx, sh(tc.script+strings.ReplaceAll(wait, "%N", tc.n)+end.script))
				if o.Err != nil || o.TimedOut != (end.script != "") || upTimes(word) == 0 {
					t.Fatalf("%+v, %d came up", o, upTimes(word))
				}
				awaitNone(t, word)
			})
		}
	}
}

// awaitNone waits until no process has the word and no child of ours is left. On a busy machine a process may take longer
// to die of its killing than a command's end waits; then the end of the next one takes it along.
func awaitNone(t *testing.T, word string) {
	t.Helper()
	await.That(t, "nothing is left behind", func() bool {
		if len(marked(t, word)) == 0 && childCount(t) == 0 {
			return true
		}
		run(t, sh("true"))
		return false
	})
}

// childCount counts our children, zombies included, without making one.
func childCount(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(after) > 1 && after[1] == itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func TestBackgroundOfARunningCommandIsNotTakenForAnOrphan(t *testing.T) {
	sleep, word := sleeper(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan child.Outcome)
	go func() { ended <- child.Run(ctx, sh("("+sleep+" &); sleep 1003")) }()
	await.That(t, "the orphan is up", func() bool { return upTimes(word) == 1 })
	for range 20 {
		run(t, sh("true"))
	}
	if n := len(marked(t, word)); n == 0 {
		t.Error("other commands' ends killed it")
	}
	cancel()
	<-ended
	awaitNone(t, word)
}

func TestFloodIsCappedAndEnded(t *testing.T) {
	for _, stream := range []string{"", ">&2"} {
		o := run(t, sh("exec yes "+stream))
		if !o.Flooded || o.Signal != syscall.SIGKILL || len(o.Stdout)+len(o.Stderr) != child.DefaultOutput {
			t.Errorf("flooded %t, signal %v, %d and %d bytes", o.Flooded, o.Signal, len(o.Stdout), len(o.Stderr))
		}
	}
	s := sh("head -c 1000000 /dev/zero | tr '\\0' x; echo end >&2")
	s.Output = 100
	if o := run(t, s); o.Flooded || o.Exit != 0 || len(o.Stdout) != 100 || string(o.Stderr) != "end\n" {
		t.Errorf("%+v", o)
	}
}

func TestContextThatHasEndedStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := child.Run(ctx, sh("true")); !o.TimedOut {
		t.Errorf("%+v", o)
	}
}

// Executing a file may hang. Here it lies on a file system whose server never answers.
func TestExecutionThatHangsHoldsUpNoOther(t *testing.T) {
	dir := deadMount(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan child.Outcome)
	go func() { ended <- child.Run(ctx, child.Spec{Argv: []string{dir + "/check"}}) }()
	go func() { ended <- child.Run(ctx, child.Spec{Argv: []string{"/bin/true"}, Dir: dir}) }()
	for _, entry := range []string{dir + "/check", dir + "\x00/bin/true"} {
		await.That(t, "the child that hangs is there", func() bool { return len(marked(t, entry)) == 1 })
	}
	for range 10 {
		if o := run(t, sh("echo fine")); string(o.Stdout) != "fine\n" {
			t.Errorf("%+v", o)
		}
	}
	cancel()
	for range 2 {
		if o := <-ended; !o.TimedOut || o.Hung || o.Err != nil {
			t.Errorf("%+v", o)
		}
	}
}

// deadMount is a FUSE mount without a server.
func deadMount(t *testing.T) string {
	t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", 0, "fd="+itoa(int(dev.Fd()))+",rootmode=40000,user_id=0,group_id=0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close() // which ends every call that waits
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestWhatCannotBeKilledIsAnOutcomeAndNotStartedTwice(t *testing.T) {
	dir, thaw := frozenDisk(t)
	s := child.Spec{Key: t.Name(), Argv: []string{"/bin/sh", "-c", "echo begun; cd " + dir + "; : > " + dir + "/file"}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !slices.ContainsFunc(marked(t, dir+"/file"), func(pid string) bool { return stuckOpening(pid, dir) }) {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	o := child.Run(ctx, s)
	if !o.TimedOut || !o.Hung || string(o.Stdout) != "begun\n" {
		t.Fatalf("%+v", o)
	}
	for range 3 {
		if again := run(t, s); !again.Hung || len(again.Stdout) > 0 {
			t.Errorf("%+v", again)
		}
		if n := len(marked(t, dir+"/file")); n != 1 {
			t.Errorf("%d processes", n)
		}
	}
	if other := run(t, sh("echo fine")); string(other.Stdout) != "fine\n" {
		t.Errorf("%+v", other)
	}
	thaw()
	await.That(t, "the process is gone", func() bool { return len(marked(t, dir+"/file")) == 0 })
	await.That(t, "the command runs again", func() bool { return !run(t, s).Hung })
}

// stuckOpening says whether a process that has entered a folder sleeps in its next open, where no signal ends it. The
// folder and the call matter: a process that only just started sleeps so now and then too, for its own pages.
func stuckOpening(pid, dir string) bool {
	if at, err := os.Readlink("/proc/" + pid + "/cwd"); err != nil || at != dir {
		return false
	}
	call, err := os.ReadFile("/proc/" + pid + "/syscall")
	if err != nil || !strings.HasPrefix(string(call), itoa(unix.SYS_OPENAT)+" ") {
		return false
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && strings.Contains(string(stat), ") D ")
}

// frozenDisk is an ext4 file system to which no write returns until it is thawed.
func frozenDisk(t *testing.T) (dir string, thaw func()) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk.img"), t.TempDir()
	command := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	command("truncate", "-s", "16M", image)
	command("mkfs.ext4", "-q", image)
	command("mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			command("fsfreeze", "-u", dir)
		}
	}
	t.Cleanup(thaw)
	command("fsfreeze", "-f", dir)
	return dir, thaw
}
