package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
)

func TestParseFstab(t *testing.T) {
	const content = `# <file system> <mount point>
UUID=0a3407de-014b-458b-b5c1-848e92a327a3 / ext4 errors=remount-ro 0 1
/dev/vdb	/mnt/with\040space/ xfs	defaults,noatime 0 2
/swap none swap sw 0 0
/dev/vdc none swap sw 0 0
server:/export /data nfs4 nofail,_netdev
tmpfs /tmp tmpfs
/dev/vdd /backup ext4 noauto
# /dev/vde /old ext4
nonsense
/dev/vdf relative ext4 defaults
`
	want := []fstabEntry{
		{source: "UUID=0a3407de-014b-458b-b5c1-848e92a327a3", mountpoint: "/", fsType: "ext4", options: []string{"errors=remount-ro"}},
		{source: "/dev/vdb", mountpoint: "/mnt/with space", fsType: "xfs", options: []string{"defaults", "noatime"}},
		{source: "server:/export", mountpoint: "/data", fsType: "nfs4", options: []string{"nofail", "_netdev"}},
		{source: "tmpfs", mountpoint: "/tmp", fsType: "tmpfs", options: []string{"defaults"}},
		{source: "/dev/vdd", mountpoint: "/backup", fsType: "ext4", options: []string{"noauto"}},
	}
	got := parseFstab(content)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	var must, disks []string
	for _, e := range got {
		if e.mustBeMounted() {
			must = append(must, e.mountpoint)
		}
		if e.onDevice() {
			disks = append(disks, e.mountpoint)
		}
	}
	if !slices.Equal(must, []string{"/", "/mnt/with space", "/tmp"}) || !slices.Equal(disks, []string{"/", "/mnt/with space", "/backup"}) {
		t.Errorf("must be mounted: %q; on disks: %q", must, disks)
	}
}

func TestBroken(t *testing.T) {
	for _, tc := range []struct {
		name, options, super, fstab, want string
	}{
		{name: "writable", options: "rw,relatime", super: "rw"},
		{name: "mounted read-only", options: "ro,relatime", super: "ro"},
		{name: "bound read-only", options: "ro,relatime", super: "rw"},
		{name: "made read-only by the kernel after an error", options: "rw,relatime", super: "ro,errors=remount-ro", want: "ro"},
		{name: "the same on newer kernels", options: "rw,relatime", super: "rw,errors=remount-ro,emergency_ro", want: "emergency_ro"},
		{name: "shut down", options: "rw", super: "rw,shutdown", want: "shutdown"},
		{name: "shut down, where nothing was to be written", options: "ro", super: "ro,shutdown", want: "shutdown"},
		{name: "remounted read-only against fstab", options: "ro", super: "ro", fstab: "/dev/vdb /data ext4 defaults", want: "ro"},
		{name: "read-only as fstab says", options: "ro", super: "ro", fstab: "/dev/vdb /data ext4 ro"},
		{name: "read-only as fstab says, though the mount says otherwise", options: "rw", super: "ro", fstab: "/dev/vdb /data ext4 ro"},
		{name: "mounted by hand, otherwise than fstab proposes", options: "ro", super: "ro", fstab: "/dev/vdb /data ext4 noauto"},
		{name: "what fstab says of another", options: "ro", super: "ro", fstab: "/dev/vdb /data2 ext4 defaults"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &mountinfo.Info{Mountpoint: "/data", FSType: "ext4", Options: tc.options, VFSOptions: tc.super}
			if got := broken(m, parseFstab(tc.fstab)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestJudgeTable(t *testing.T) {
	mounted := mountinfo.Info{Mountpoint: "/data", FSType: "xfs", Source: "/dev/vdb1", Options: "rw,noatime,nodev", VFSOptions: "rw,attr2"}
	readonly := mounted
	readonly.Options, readonly.VFSOptions = "ro", "ro"
	bound := mounted
	bound.Options = "ro"
	for _, tc := range []struct {
		name, device string
		own          bool
		at           mountinfo.Info
		o            MountOptions
		reason, what string
	}{
		{name: "as expected", at: mounted, o: MountOptions{Access: readWrite, Source: "/dev/vdb1", FSType: "xfs", Options: []string{"nodev", "attr2"}}},
		{name: "by a link to the device", at: mounted, device: "/dev/vdb1", o: MountOptions{Access: readWrite, Source: "LABEL=data"}},
		{name: "another source", at: mounted, device: "/dev/vdc1", o: MountOptions{Source: "LABEL=data"}, reason: WrongSource, what: "is /dev/vdb1, not LABEL=data"},
		{name: "another type", at: mounted, o: MountOptions{FSType: "ext4"}, reason: WrongFSType, what: "is of type xfs, not ext4"},
		{name: "an option is missing", at: mounted, o: MountOptions{Access: anyAccess, Options: []string{"nodev", "nosuid"}}, reason: WrongOptions, what: "is mounted without the option nosuid"},
		{name: "read-only", at: readonly, o: MountOptions{Access: readWrite}, reason: ReadOnly, what: "is mounted with the option ro"},
		{name: "bound read-only", at: bound, o: MountOptions{Access: readWrite}, reason: ReadOnly, what: "is mounted with the option ro"},
		{name: "bound read-only by our own doing", at: bound, own: true, o: MountOptions{Access: readWrite}},
		{name: "read-only, as expected", at: readonly, o: MountOptions{Access: readsOnly}},
		{name: "read-only, whatever is expected", at: readonly, o: MountOptions{Access: anyAccess}},
		{name: "writable against expectation", at: mounted, o: MountOptions{Access: readsOnly}, reason: WrongOptions, what: "can be written"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if reason, what := tc.o.judgeTable(table{own: tc.own}, &tc.at, tc.device); reason != tc.reason || what != tc.what {
				t.Errorf("%s %q", reason, what)
			}
		})
	}
}

func TestJudgeStatfs(t *testing.T) {
	path := func(err error) error { return &fs.PathError{Op: "statfs", Path: "/host/data", Err: err} }
	for _, tc := range []struct {
		name, fsType, want string
		magic              int64
		err                error
	}{
		{name: "answers", fsType: "ext4", magic: unix.EXT4_SUPER_MAGIC},
		{name: "hangs", fsType: "nfs4", err: fmt.Errorf("statfs /data: %w: %w", probes.ErrHung, context.DeadlineExceeded), want: Hung},
		{name: "a server that went away", fsType: "nfs4", err: path(unix.ESTALE), want: Failing},
		{name: "a process that went away", fsType: "fuse.sshfs", err: path(unix.ENOTCONN), want: Failing},
		{name: "forbidden to the agent", fsType: "ext4", err: path(unix.EACCES), want: Unreadable},
		{name: "no prober", fsType: "ext4", err: errors.New("start a child: out of memory"), want: Unreadable},
		{name: "hidden from the agent", fsType: "ext4", magic: unix.TMPFS_MAGIC, want: NotCheckable},
		{name: "a tmpfs", fsType: "tmpfs", magic: unix.TMPFS_MAGIC},
	} {
		if reason, what := judgeStatfs(tc.fsType, unix.Statfs_t{Type: tc.magic}, tc.err); reason != tc.want || (what == "") != (tc.want == "") {
			t.Errorf("%s: %s %q, want %s", tc.name, reason, what, tc.want)
		}
	}
}

func TestJudgeWrite(t *testing.T) {
	step := func(op string, err error) error { return &fs.PathError{Op: op, Path: "/host/data", Err: err} }
	for _, tc := range []struct {
		name         string
		root         string
		err          error
		reason, what string
	}{
		{name: "went well", root: "/"},
		{name: "no space", root: "/", err: step("write a file in", unix.ENOSPC), reason: NotWritable, what: "write a file in it: no space left on device"},
		{name: "an error of the disk", root: "/", err: step("sync a file in", unix.EIO), reason: NotWritable, what: "sync a file in it: input/output error"},
		{name: "read-only", root: "/", err: step("create a file in", unix.EROFS), reason: NotWritable, what: "create a file in it: read-only file system"},
		{name: "read-only, in a container", root: t.TempDir(), err: step("create a file in", unix.EROFS), reason: NotCheckable, what: "the agent may not write there: create a file in it: read-only file system"},
		{name: "forbidden", root: "/", err: step("create a file in", unix.EACCES), reason: NotCheckable, what: "the agent may not write there: create a file in it: permission denied"},
		{name: "hangs", root: "/", err: probes.ErrHung, reason: Frozen, what: "it answers, but a write does not return"},
		{name: "no prober", root: "/", err: errors.New("no prober"), reason: Unreadable, what: "no prober"},
	} {
		host, err := hostfs.Open(tc.root)
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		l := mountLook{host: host}
		if reason, what := l.judgeWrite(tc.err); reason != tc.reason || what != tc.what {
			t.Errorf("%s: %s %q", tc.name, reason, what)
		}
	}
}

func TestMountOptionsThatContradictThemselves(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*MountOptions)
		key    string
	}{
		{name: "as they are", change: func(*MountOptions) {}},
		{name: "no path", change: func(o *MountOptions) { o.Path = "" }, key: "path"},
		{name: "a path that no table shows", change: func(o *MountOptions) { o.Path = "/data/" }, key: "path"},
		{name: "a write check of what must be read-only", change: func(o *MountOptions) { o.WriteCheck, o.Access = true, readsOnly }, key: "writeCheck"},
		{name: "two options in one", change: func(o *MountOptions) { o.Options = []string{"nodev", "nosuid,noexec"} }, key: "options[1]"},
		{name: "read-only and not", change: func(o *MountOptions) { o.Options = []string{"ro"} }, key: "options[0]"},
		{name: "fatal above degraded", change: func(o *MountOptions) { o.SpaceFatalPercent = 11 }, key: "spaceFatalPercent"},
		{name: "fatal above degraded, in bytes", change: func(o *MountOptions) { o.SpaceDegradedBytes, o.SpaceFatalBytes = 1, 2 }, key: "spaceFatalBytes"},
		{name: "fatal above degraded, of inodes", change: func(o *MountOptions) { o.InodesFatalPercent = 11 }, key: "inodesFatalPercent"},
	} {
		o := Mount.NewOptions().(*MountOptions)
		o.Path = "/data"
		tc.change(o)
		var key string
		o.Validate(func(_, _ string, keys ...string) { key = keys[0] })
		if key != tc.key {
			t.Errorf("%s: fault at %q, want %q", tc.name, key, tc.key)
		}
	}
}
