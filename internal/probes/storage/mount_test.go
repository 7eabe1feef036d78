package storage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/prober"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/storage"
	"github.com/fettle-dev/fettle/test/await"
)

// long is a deadline that no test is meant to reach.
const long = 2 * time.Minute

func openHost(t *testing.T, dir string) *hostfs.Root {
	t.Helper()
	host, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return host
}

// mountProbe looks at a mount through a real prober.
func mountProbe(t *testing.T, root, path string, change func(*storage.MountOptions)) probes.Probe {
	t.Helper()
	files := prober.New(slog.New(slog.DiscardHandler))
	t.Cleanup(files.Close)
	options := storage.Mount.NewOptions().(*storage.MountOptions)
	options.Path = path
	if change != nil {
		change(options)
	}
	return storage.Mount.Build(probes.Env{Host: openHost(t, root), Files: files}, options)
}

func within(t *testing.T, d time.Duration, p probes.Probe) health.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return p.Run(ctx)
}

func writeChecked(o *storage.MountOptions) { o.WriteCheck = true }

func TestMountOnARealDisk(t *testing.T) {
	d := newDisk(t)
	p := mountProbe(t, "/", d.dir, func(o *storage.MountOptions) {
		o.WriteCheck, o.FSType, o.Source, o.Options = true, "ext4", d.device, []string{"relatime"}
	})
	expect(t, "as expected", within(t, long, p), health.OK, health.ReasonOK)
	expect(t, "of another type", within(t, long, mountProbe(t, "/", d.dir, func(o *storage.MountOptions) { o.FSType = "xfs" })), health.Fatal, storage.WrongFSType)
	expect(t, "no mount point", within(t, long, mountProbe(t, "/", d.dir+"/lost+found", nil)), health.Fatal, storage.Missing)
	expect(t, "no mount point, which is fine", within(t, long, mountProbe(t, "/", d.dir+"/lost+found", func(o *storage.MountOptions) { o.Optional = true })), health.NotApplicable, health.ReasonNotApplicable)

	d.fillUntil(10)
	expect(t, "nearly full", within(t, long, p), health.Degraded, storage.SpaceLow)
	d.empty()
	command(t, "mount", "-o", "remount,ro", d.dir)
	expect(t, "read-only", within(t, long, p), health.Fatal, storage.ReadOnly)
	expect(t, "read-only, as expected", within(t, long, mountProbe(t, "/", d.dir, func(o *storage.MountOptions) { o.Access = "readOnly" })), health.OK, health.ReasonOK)
	command(t, "mount", "-o", "remount,rw", d.dir)
	expect(t, "writable again", within(t, long, p), health.OK, health.ReasonOK)
}

func TestMountThatTakesNoFile(t *testing.T) {
	d := newDisk(t, "-N", "1024")
	p := mountProbe(t, "/", d.dir, writeChecked)
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(d.dir, fmt.Sprint(i)))
		if err != nil {
			break
		}
		f.Close()
	}
	got := within(t, long, p)
	expect(t, "without inodes", got, health.Fatal, storage.NotWritable)
	if want := d.dir + ": create a file in it: no space left on device"; got.Message != want {
		t.Errorf("%q, want %q", got.Message, want)
	}
}

func TestFrozenMount(t *testing.T) {
	d := newDisk(t)
	p := mountProbe(t, "/", d.dir, writeChecked)
	expect(t, "before", within(t, long, p), health.OK, health.ReasonOK)
	command(t, "fsfreeze", "-f", d.dir)
	frozen := true
	t.Cleanup(func() {
		if frozen {
			command(t, "fsfreeze", "-u", d.dir)
		}
	})
	await.That(t, "frozen", func() bool { return within(t, 2*time.Second, p).Reason == storage.Frozen })
	expect(t, "still frozen", within(t, long, p), health.Fatal, storage.Frozen)
	command(t, "fsfreeze", "-u", d.dir)
	frozen = false
	await.That(t, "thawed", func() bool { return within(t, long, p).Verdict == health.OK })
}

func TestMountWithoutAServer(t *testing.T) {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dir := t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	p := mountProbe(t, "/", dir, writeChecked)
	expect(t, "that does not answer", within(t, 100*time.Millisecond, p), health.Fatal, storage.Hung)
	expect(t, "that still does not", within(t, long, p), health.Fatal, storage.Hung)
	if !storage.Dependent(openHost(t, "/"), dir+"/file") || storage.Dependent(openHost(t, "/"), "/etc") {
		t.Error("it is not known what depends on a server")
	}
	dev.Close()
	await.That(t, "the server is gone for good", func() bool { return within(t, long, p).Reason == storage.Failing })
}

// newRoot is a file system of its own without /proc, as a container's view of its host may be: then the agent's own
// mount table is all there is.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	command(t, "mount", "-t", "tmpfs", "tmpfs", root)
	t.Cleanup(func() { unmount(t, root) })
	return root
}

func TestMountSeenFromAContainer(t *testing.T) {
	root, d := newRoot(t), newDisk(t)
	inside := filepath.Join(root, "data")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "--bind", d.dir, inside)
	t.Cleanup(func() { unmount(t, inside) })
	p := mountProbe(t, root, "/data", writeChecked)
	expect(t, "writable", within(t, long, p), health.OK, health.ReasonOK)
	command(t, "mount", "-o", "remount,bind,ro", inside)
	expect(t, "that may not write there", within(t, long, p), health.Unknown, storage.NotCheckable)
	expect(t, "and is not asked to", within(t, long, mountProbe(t, root, "/data", nil)), health.OK, health.ReasonOK)
	command(t, "mount", "-o", "remount,ro", d.dir)
	expect(t, "of a file system that is read-only", within(t, long, p), health.Fatal, storage.ReadOnly)
	expect(t, "elsewhere", within(t, long, mountProbe(t, root, "/other", nil)), health.Fatal, storage.Missing)
}

func fsProbe(t *testing.T, root string, fstab string) probes.Probe {
	t.Helper()
	options := storage.Filesystems.NewOptions().(*storage.FSOptions)
	if fstab != "" {
		options.Fstab = fstab
	}
	return storage.Filesystems.Build(probes.Env{Host: openHost(t, root)}, options)
}

func TestFilesystemsOnRealDisks(t *testing.T) {
	root := newRoot(t)
	disks := map[string]disk{}
	for _, name := range []string{"a", "b"} {
		d := newDisk(t)
		at := filepath.Join(root, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, "mount", "--bind", d.dir, at)
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // one test step unmounts it
		disks[name] = d
	}
	write := func(name, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p := fsProbe(t, root, "")
	expect(t, "without fstab", within(t, long, p), health.OK, health.ReasonOK)
	if err := os.Symlink("/b", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	write("etc/fstab", "/dev/vda /a ext4 defaults 0 2\n/dev/vdb /link ext4 defaults\n/dev/vdc /c ext4 nofail\ntmpfs /d tmpfs noauto\n")
	expect(t, "with fstab", within(t, long, p), health.OK, health.ReasonOK)

	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(disks["b"].device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("test"), 0o200); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the kernel has given up on the disk", func() bool {
		return os.WriteFile(filepath.Join(disks["b"].dir, "probe"), nil, 0o600) != nil
	})
	await.That(t, "it is seen", func() bool { return within(t, long, p).Reason == storage.ReadOnly })
	if got := within(t, long, p).Message; got != "/b has the option emergency_ro" && got != "/b has the option ro" {
		t.Errorf("%q", got)
	}
	if err := unix.Unmount(filepath.Join(root, "b"), 0); err != nil {
		t.Fatal(err)
	}
	got := within(t, long, p)
	expect(t, "unmounted", got, health.Fatal, storage.Missing)
	if want := "nothing is mounted at /link, where /etc/fstab says /dev/vdb"; got.Message != want {
		t.Errorf("%q, want %q", got.Message, want)
	}
	write("run/systemd/container", "")
	expect(t, "in a system container, which has no disks of its own", within(t, long, p), health.OK, health.ReasonOK)
	write("etc/fstab", "tmpfs /e tmpfs\n")
	expect(t, "but may have mounts", within(t, long, p), health.Fatal, storage.Missing)
}

func TestChangesOfMountsAreNoticedByAllWhoWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	asked := map[int]int{}
	var watching sync.WaitGroup
	for i, p := range []probes.Probe{mountProbe(t, "/", "/nowhere", nil), fsProbe(t, "/", ""), fsProbe(t, newRoot(t), "")} {
		w, ok := p.(probes.Watcher)
		if !ok {
			t.Fatal("it does not watch")
		}
		watching.Go(func() {
			w.Watch(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				asked[i]++
			})
		})
	}
	dir, nudge := t.TempDir(), newRoot(t)
	for _, change := range []func() error{
		func() error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") },
		func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") },
		func() error { return unix.Unmount(dir, 0) },
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		await.That(t, "all are told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			if len(asked) < 3 {
				// They may have begun to watch only after the change.
				mu.Unlock()
				command(t, "mount", "-o", "remount,bind,rw", nudge)
				mu.Lock()
			}
			return len(asked) == 3
		})
	}
	cancel()
	watching.Wait()
}
