package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/storage"
)

// disk is an ext4 file system of 64 MiB on a loop device, mounted.
type disk struct {
	t      *testing.T
	dir    string
	device string
}

// newDisk needs root. Whatever happens in the test, the file system is unmounted and the loop device freed with it.
func newDisk(t *testing.T, mkfs ...string) disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts a loop device and must run as root")
	}
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	command(t, "mkfs.ext4", append(append([]string{"-q", "-m", "0"}, mkfs...), image)...)
	d := disk{t: t, dir: t.TempDir()}
	command(t, "mount", "-o", "loop,errors=remount-ro", image, d.dir)
	t.Cleanup(func() { unmount(t, d.dir) })
	d.device = strings.TrimSpace(command(t, "findmnt", "-n", "-o", "SOURCE", "--mountpoint", d.dir))
	return d
}

// unmount lets go of the file system at once and of the mount when nobody uses it any more.
func unmount(t *testing.T, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

// probe looks at a path below a host root again and again, with its memory.
func probe(t *testing.T, root string, change func(*storage.RootOptions)) func() health.Result {
	t.Helper()
	host, err := hostfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	options := storage.RootFilesystem.NewOptions().(*storage.RootOptions)
	if change != nil {
		change(options)
	}
	p := storage.RootFilesystem.Build(probes.Env{Host: host}, options)
	return func() health.Result { return p.Run(context.Background()) }
}

func expect(t *testing.T, when string, got health.Result, verdict health.Verdict, reason string) {
	t.Helper()
	if got.Verdict != verdict || got.Reason != reason {
		t.Errorf("%s: %+v, want %s %s", when, got, verdict, reason)
	}
}

// fillUntil writes until the file system has this share of its space left, in percent.
func (d disk) fillUntil(percent uint64) {
	d.t.Helper()
	name := filepath.Join(d.dir, "ballast")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 64<<10); ; {
		var st unix.Statfs_t
		if err := unix.Statfs(d.dir, &st); err != nil {
			d.t.Fatal(err)
		}
		if st.Bavail*100 < percent*(st.Blocks-st.Bfree+st.Bavail) {
			return
		}
		if _, err := f.Write(piece); err != nil {
			d.t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d disk) empty() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "ballast")); err != nil {
		d.t.Fatal(err)
	}
}

func TestSpaceOnARealDisk(t *testing.T) {
	d := newDisk(t)
	look := probe(t, "/", func(o *storage.RootOptions) { o.Path = d.dir })
	expect(t, "empty", look(), health.OK, health.ReasonOK)
	d.fillUntil(10)
	expect(t, "below a tenth", look(), health.Degraded, storage.SpaceLow)
	d.fillUntil(2)
	expect(t, "below a fiftieth", look(), health.Fatal, storage.SpaceExhausted)
	d.empty()
	expect(t, "emptied", look(), health.OK, health.ReasonOK)
}

func TestInodesOnARealDisk(t *testing.T) {
	d := newDisk(t, "-N", "1024")
	look := probe(t, "/", func(o *storage.RootOptions) { o.Path = d.dir })
	expect(t, "empty", look(), health.OK, health.ReasonOK)
	made := 0
	for ; ; made++ {
		f, err := os.Create(filepath.Join(d.dir, fmt.Sprint(made)))
		if err != nil {
			break
		}
		f.Close()
	}
	if made < 500 {
		t.Fatalf("only %d files fitted", made)
	}
	expect(t, "no file fits", look(), health.Fatal, storage.InodesExhausted)
	for i := range 60 {
		if err := os.Remove(filepath.Join(d.dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "some files fit", look(), health.Degraded, storage.InodesLow)
}

func TestReadOnlyOnARealDisk(t *testing.T) {
	d := newDisk(t)
	machine := probe(t, "/", func(o *storage.RootOptions) { o.Path = d.dir })
	container := probe(t, d.dir, nil)
	expected := probe(t, d.dir, func(o *storage.RootOptions) { o.ExpectReadOnly = true })
	expect(t, "writable", machine(), health.OK, health.ReasonOK)
	expect(t, "writable, from a container", container(), health.OK, health.ReasonOK)

	command(t, "mount", "-o", "remount,ro", d.dir)
	expect(t, "remounted", machine(), health.Fatal, storage.ReadOnly)
	expect(t, "remounted, from a container", container(), health.Fatal, storage.ReadOnly)
	expect(t, "remounted, as expected", expected(), health.OK, health.ReasonOK)

	command(t, "mount", "-o", "remount,rw", d.dir)
	expect(t, "writable again", machine(), health.OK, health.ReasonOK)
	expect(t, "writable again, from a container", container(), health.OK, health.ReasonOK)
}

// The kernel itself gives up on the file system, as it does after an I/O error in its metadata.
func TestKernelErrorOnARealDisk(t *testing.T) {
	d := newDisk(t)
	machine := probe(t, "/", func(o *storage.RootOptions) { o.Path = d.dir })
	container := probe(t, d.dir, nil)
	expect(t, "before", machine(), health.OK, health.ReasonOK)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("test"), 0o200); err != nil {
		t.Fatal(err)
	}
	// Some kernels remount from a worker of their own.
	deadline := time.Now().Add(10 * time.Second)
	for os.WriteFile(filepath.Join(d.dir, "probe"), nil, 0o600) == nil {
		if time.Now().After(deadline) {
			t.Fatal("the kernel still takes writes")
		}
	}
	expect(t, "after", machine(), health.Fatal, storage.ReadOnly)
	expect(t, "after, from a container", container(), health.Fatal, storage.ReadOnly)
}

// The agent's container mounts the host read-only, which says nothing of the host.
func TestHostMountedReadOnlyIntoTheContainerIsWell(t *testing.T) {
	d := newDisk(t)
	host := t.TempDir()
	command(t, "mount", "--bind", d.dir, host)
	t.Cleanup(func() { unmount(t, host) })
	command(t, "mount", "-o", "remount,bind,ro", host)
	if err := os.WriteFile(filepath.Join(host, "x"), nil, 0o600); err == nil {
		t.Fatal("the mount is writable")
	}
	look := probe(t, host, nil)
	expect(t, "bound read-only", look(), health.OK, health.ReasonOK)

	// With the machine's /proc in it, as a recursive mount has: its table is of another root here, and must not count.
	if err := os.Mkdir(filepath.Join(d.dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-t", "proc", "proc", filepath.Join(host, "proc"))
	t.Cleanup(func() { unmount(t, filepath.Join(host, "proc")) })
	expect(t, "with a /proc of another root", look(), health.OK, health.ReasonOK)

	command(t, "mount", "-o", "remount,ro", d.dir)
	expect(t, "read-only itself", look(), health.Fatal, storage.ReadOnly)
}

func TestPathBehindAnAbsoluteLink(t *testing.T) {
	d := newDisk(t)
	for _, step := range []error{os.Mkdir(filepath.Join(d.dir, "real"), 0o755), os.Symlink("/real", filepath.Join(d.dir, "link"))} {
		if step != nil {
			t.Fatal(step)
		}
	}
	look := probe(t, d.dir, func(o *storage.RootOptions) { o.Path = "/link" })
	expect(t, "through the link", look(), health.OK, health.ReasonOK)
}

func TestPathThatDoesNotExistIsUnknown(t *testing.T) {
	look := probe(t, t.TempDir(), func(o *storage.RootOptions) { o.Path = "/missing" })
	got := look()
	expect(t, "missing", got, health.Unknown, storage.Unreadable)
	if got.Message != "stat /missing: no such file or directory" {
		t.Errorf("%q", got.Message)
	}
}

// A tree whose init says that it is a squashfs stands in for an image-based system.
func TestFileSystemThatIsNeverWritten(t *testing.T) {
	root := t.TempDir()
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		t.Fatal(err)
	}
	table := fmt.Sprintf("28 1 %d:%d / / ro,relatime - squashfs /dev/loop0 ro\n", unix.Major(st.Dev), unix.Minor(st.Dev))
	for _, step := range []error{os.MkdirAll(filepath.Join(root, "proc/1"), 0o755), os.WriteFile(filepath.Join(root, "proc/1/mountinfo"), []byte(table), 0o600)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	expect(t, "squashfs", probe(t, root, nil)(), health.NotApplicable, health.ReasonNotApplicable)
}
