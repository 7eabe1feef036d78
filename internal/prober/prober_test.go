package prober_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/internal/prober"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/test/await"
)

const (
	// long is a deadline that no test is meant to reach.
	long = 2 * time.Minute
	// short is one for calls that never return.
	short = 50 * time.Millisecond
)

func newProber(t *testing.T) *prober.Prober {
	t.Helper()
	p := prober.New(slog.New(slog.DiscardHandler))
	p.SetPong(long)
	t.Cleanup(p.Close)
	return p
}

func statfs(t *testing.T, p *prober.Prober, path string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := p.Statfs(ctx, path)
	return err
}

func writeCheck(t *testing.T, p *prober.Prober, folder string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return p.WriteCheck(ctx, folder)
}

// alive : a zombie whose new parent has not noticed yet is not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// newDisk is an ext4 file system on a loop device.
func newDisk(t *testing.T) (dir string) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk.img"), t.TempDir()
	command(t, "truncate", "-s", "16M", image)
	command(t, "mkfs.ext4", "-q", "-m", "0", image)
	command(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// freeze makes writes to a file system not return until thaw.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			command(t, "fsfreeze", "-u", dir)
		}
	}
	t.Cleanup(thaw)
	command(t, "fsfreeze", "-f", dir)
	return thaw
}

// deadMount is a FUSE mount whose server never answers, until revive ends all calls.
func deadMount(t *testing.T) (dir string, revive func()) {
	t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() { dev.Close() }
}

func TestCallsThatReturn(t *testing.T) {
	p, disk := newProber(t), newDisk(t)
	if p.ChildPID() != 0 {
		t.Fatal("there is a child that nobody asked for")
	}
	got, err := p.Statfs(t.Context(), disk)
	var want unix.Statfs_t
	if err != nil || unix.Statfs(disk, &want) != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := p.WriteCheck(t.Context(), disk); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(disk); err != nil || len(entries) != 1 || entries[0].Name() != "lost+found" {
		t.Errorf("the write check left %v", entries)
	}
	for _, tc := range []struct {
		name string
		err  error
		want error
	}{
		{"statfs of what is missing", statfs(t, p, disk+"/missing", long), unix.ENOENT},
		{"a write check in a missing folder", writeCheck(t, p, disk+"/missing", long), unix.ENOENT},
		{"a write check in a file", writeCheck(t, p, "/etc/passwd", long), unix.ENOTDIR},
	} {
		var at *fs.PathError
		if !errors.Is(tc.err, tc.want) || !errors.As(tc.err, &at) || errors.Is(tc.err, probes.ErrHung) {
			t.Errorf("%s: %v", tc.name, tc.err)
		}
	}
}

func TestWriteCheckOfDisksThatTakeNothing(t *testing.T) {
	p, disk := newProber(t), newDisk(t)
	ballast := exec.Command("dd", "if=/dev/zero", "of="+disk+"/ballast", "bs=4k")
	if out, err := ballast.CombinedOutput(); err == nil {
		t.Fatalf("the disk is not full: %s", out)
	}
	if err := writeCheck(t, p, disk, long); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("full: %v", err)
	}
	if _, err := os.Lstat(disk + "/.fettle-write-check"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	command(t, "mount", "-o", "remount,ro", disk)
	if err := writeCheck(t, p, disk, long); !errors.Is(err, unix.EROFS) {
		t.Errorf("read-only: %v", err)
	}
}

func TestWriteCheckTouchesNothingOfOthers(t *testing.T) {
	p, dir := newProber(t), t.TempDir()
	theirs, name := filepath.Join(dir, "theirs"), filepath.Join(dir, ".fettle-write-check")
	for what, plant := range map[string]func() error{
		"a symbolic link": func() error { return os.Symlink(theirs, name) },
		"a hard link":     func() error { return os.Link(theirs, name) },
		"a file":          func() error { return os.WriteFile(name, []byte("of a check that was killed"), 0o600) },
		"a pipe":          func() error { return unix.Mkfifo(name, 0o600) },
	} {
		if err := errors.Join(os.WriteFile(theirs, []byte("precious"), 0o600), plant()); err != nil {
			t.Fatal(err)
		}
		if err := writeCheck(t, p, dir, long); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if content, err := os.ReadFile(theirs); string(content) != "precious" {
			t.Errorf("%s: %q, %v", what, content, err)
		}
	}
}

func TestCallThatHangsIsMadeOnceAndHoldsUpNoOther(t *testing.T) {
	p, fine := newProber(t), t.TempDir()
	dead, revive := deadMount(t)
	err := statfs(t, p, dead, short)
	if !errors.Is(err, probes.ErrHung) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	first := p.ChildPID()
	for range 20 {
		if err := statfs(t, p, dead, long); !errors.Is(err, probes.ErrHung) || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := errors.Join(statfs(t, p, fine, long), writeCheck(t, p, fine, long)); err != nil {
			t.Error(err)
		}
	}
	if now := p.ChildPID(); now != first {
		t.Errorf("child %d was replaced by %d", first, now)
	}
	revive()
	await.That(t, "the call returned", func() bool { return p.Open() == 0 })
	if err := statfs(t, p, dead, long); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Error(err)
	}
}

func TestFrozenDiskAnswersStatfsButNoWrite(t *testing.T) {
	p, disk := newProber(t), newDisk(t)
	thaw := freeze(t, disk)
	if err := writeCheck(t, p, disk, short); !errors.Is(err, probes.ErrHung) {
		t.Error(err)
	}
	if err := statfs(t, p, disk, long); err != nil {
		t.Error(err)
	}
	thaw()
	await.That(t, "the check returned", func() bool { return p.Open() == 0 })
	if err := writeCheck(t, p, disk, long); err != nil {
		t.Error(err)
	}
}

func TestCallerThatIsToldToEndSaysNothingOfThePath(t *testing.T) {
	p := newProber(t)
	dead, _ := deadMount(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, err := p.Statfs(ctx, dead); ended <- err }()
	await.That(t, "the call is made", func() bool { return p.Open() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, probes.ErrHung) {
		t.Error(err)
	}
	if err := statfs(t, p, dead, short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second caller did not wait for itself: %v", err)
	}
}

func TestChildThatIsKilledIsReplaced(t *testing.T) {
	p, dir := newProber(t), t.TempDir()
	dead, _ := deadMount(t)
	if err := statfs(t, p, dead, short); !errors.Is(err, probes.ErrHung) {
		t.Fatal(err)
	}
	first := p.ChildPID()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "its end is noticed", func() bool { return p.ChildPID() != first })
	if err := statfs(t, p, dir, long); err != nil {
		t.Errorf("right after: %v", err)
	}
	if err := statfs(t, p, dead, short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call that died with it is not made again: %v", err)
	}
	// One that ends again and again is given time.
	await.That(t, "starting it stops for a while", func() bool {
		if pid := p.ChildPID(); pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
			await.That(t, "its end is noticed", func() bool { return p.ChildPID() != pid })
		}
		return statfs(t, p, dir, long) != nil
	})
	await.That(t, "it is started again", func() bool { return statfs(t, p, dir, long) == nil })
}

func TestCallThatWaitsWhenTheChildIsKilledFails(t *testing.T) {
	p := newProber(t)
	dead, _ := deadMount(t)
	ended := make(chan error)
	go func() { ended <- statfs(t, p, dead, long) }()
	await.That(t, "the call is made", func() bool { return p.Open() == 1 })
	if err := unix.Kill(p.ChildPID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the prober ended: signal: killed") {
		t.Error(err)
	}
}

func TestChildThatAnswersNothingIsReplaced(t *testing.T) {
	p, dir := newProber(t), t.TempDir()
	if err := statfs(t, p, dir, long); err != nil {
		t.Fatal(err)
	}
	first := p.ChildPID()
	p.SetPong(time.Second)
	if err := unix.Kill(first, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := statfs(t, p, dir, short); !errors.Is(err, probes.ErrHung) {
		t.Error(err)
	}
	await.That(t, "it is replaced", func() bool { return statfs(t, p, dir, long) == nil && p.ChildPID() != first })
	await.That(t, "the first one is gone", func() bool { return !alive(first) })
}

func TestChildThatCannotBeKilledIsLeftBehind(t *testing.T) {
	p, fine := newProber(t), t.TempDir()
	var thaws []func()
	for n := range 2 {
		disk := newDisk(t)
		thaws = append(thaws, freeze(t, disk))
		if err := writeCheck(t, p, disk, short); !errors.Is(err, probes.ErrHung) {
			t.Fatal(err)
		}
		await.That(t, "the check hangs in the kernel", func() bool { return inKernel(p.ChildPID()) })
		await.That(t, "the child has shown that it answers", func() bool { return !p.Doubted() })
		p.SetPong(time.Second)
		if err := unix.Kill(p.ChildPID(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := statfs(t, p, fine, short); !errors.Is(err, probes.ErrHung) {
			t.Error(err)
		}
		await.That(t, "it is left behind", func() bool { return p.Left() == n+1 })
		p.SetPong(long)
		if err := writeCheck(t, p, disk, long); !errors.Is(err, probes.ErrHung) {
			t.Errorf("a second check of a path that hangs: %v", err)
		}
		fine = t.TempDir() // the call on the one before may hang on with the child it was made of
		if err := statfs(t, p, fine, long); n == 0 && err != nil {
			t.Errorf("another child for another path: %v", err)
		} else if n == 1 && !errors.Is(err, probes.ErrHung) {
			t.Errorf("a third child: %v", err)
		}
	}
	for _, thaw := range thaws {
		thaw()
	}
	await.That(t, "those left behind have ended", func() bool { return p.Left() == 0 && p.Open() == 0 })
	if err := statfs(t, p, fine, long); err != nil {
		t.Error(err)
	}
}

func inKernel(pid int) bool { return (&child.Process{Pid: pid}).InKernel() }

func TestChildEndsWithItsProber(t *testing.T) {
	p := prober.New(slog.New(slog.DiscardHandler))
	dead, _ := deadMount(t)
	if err := statfs(t, p, dead, short); !errors.Is(err, probes.ErrHung) {
		t.Fatal(err)
	}
	pid := p.ChildPID()
	p.Close()
	await.That(t, "it is gone", func() bool { return !alive(pid) })
	if err := statfs(t, p, t.TempDir(), long); err == nil {
		t.Error("a closed prober answers")
	}
	prober.New(slog.New(slog.DiscardHandler)).Close() // without a child there is nothing to end
}

// agentName is a process that makes one call, says what its child is, and stays.
const agentName = "test-agent"

func init() {
	child.Early(agentName, func() int {
		p := prober.New(slog.New(slog.DiscardHandler))
		if _, err := p.Statfs(context.Background(), "/"); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(p.ChildPID())
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	})
}

func TestChildDiesWithTheAgent(t *testing.T) {
	agent := exec.Command("/proc/self/exe")
	agent.Args = []string{agentName}
	stdin, err := agent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(stdout, &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("there is no child")
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	await.That(t, "the child is gone", func() bool { return !alive(pid) })
}

func TestManyCallsLeakNothing(t *testing.T) {
	p := newProber(t)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	batch := func(n int) {
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				for i := range n / 8 {
					dir := dirs[(caller+i)%len(dirs)]
					err := statfs(t, p, dir, long)
					if i%10 == 0 {
						err = errors.Join(err, writeCheck(t, p, dir, long))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
	}
	batch(800)
	before, child := runtime.NumGoroutine(), p.ChildPID()
	threads := numbers(t, child, "Threads")
	batch(8000)
	t.Logf("child: %d KiB resident, %d KiB of it anonymous, %d threads", numbers(t, child, "VmRSS"), numbers(t, child, "RssAnon"), numbers(t, child, "Threads"))
	if now := runtime.NumGoroutine(); now > before || p.ChildPID() != child || p.Open() != 0 {
		t.Errorf("%d goroutines, before %d; child %d, before %d; %d calls open", now, before, p.ChildPID(), child, p.Open())
	}
	if now := numbers(t, child, "Threads"); now > threads+16 {
		t.Errorf("%d threads in the child, before %d", now, threads)
	}
}

// numbers is a number out of /proc/PID/status.
func numbers(t *testing.T, pid int, key string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, key+":"); found {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", key, status)
	return 0
}
