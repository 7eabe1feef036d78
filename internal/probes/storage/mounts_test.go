package storage

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestViewFind(t *testing.T) {
	for _, tc := range []struct {
		name, fixture, path string
		major, minor        uint32
		own                 bool
		want                mount
		err                 bool
	}{
		{name: "the root", fixture: "mountinfo-6.1-debian-vm", path: "/", major: 254, minor: 1, want: mount{fsType: "ext4"}},
		{name: "a path on the root", fixture: "mountinfo-6.1-debian-vm", path: "/var/lib", major: 254, minor: 1, want: mount{fsType: "ext4"}},
		{name: "a name that only begins like a mount point", fixture: "mountinfo-6.1-debian-vm", path: "/runner", major: 254, minor: 1, want: mount{fsType: "ext4"}},
		{name: "a path on another mount", fixture: "mountinfo-6.1-debian-vm", path: "/run/lock", minor: 25, want: mount{fsType: "tmpfs"}},
		{name: "a mount point with a space", fixture: "mountinfo-6.1-debian-vm", path: "/mnt/with space/x", major: 254, minor: 32, want: mount{fsType: "xfs"}},
		{name: "of two mounts at one place the later covers the earlier", fixture: "mountinfo-6.1-debian-vm", path: "/data", major: 254, minor: 49, want: mount{fsType: "xfs"}},
		{name: "a table of somebody else's root", fixture: "mountinfo-6.1-debian-vm", path: "/", major: 8, minor: 1, err: true},
		{name: "remounted read-only", fixture: "mountinfo-6.1-ro-remount", path: "/", major: 254, minor: 1, want: mount{fsType: "ext4", readOnly: "ro"}},
		{name: "the same in our own view", fixture: "mountinfo-6.1-ro-remount", path: "/", major: 254, minor: 1, own: true, want: mount{fsType: "ext4", readOnly: "ro"}},
		{name: "ext4 that stopped writing on a kernel that leaves out ro", fixture: "mountinfo-6.18-ext4-after-error", path: "/", major: 254, minor: 1, own: true, want: mount{fsType: "ext4", readOnly: "emergency_ro"}},
		{name: "the host mounted read-only into our container", fixture: "mountinfo-6.1-container-host-ro", path: "/host", major: 254, minor: 1, own: true, want: mount{fsType: "ext4"}},
		{name: "the same option in the machine's own view", fixture: "mountinfo-6.1-container-host-ro", path: "/host", major: 254, minor: 1, want: mount{fsType: "ext4", readOnly: "ro"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := view{path: tc.path, own: tc.own, read: func() ([]byte, error) { return os.ReadFile("testdata/" + tc.fixture) }}
			got, err := v.find(unix.Mkdev(tc.major, tc.minor))
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestViewFindOnBtrfsTrustsThePath(t *testing.T) {
	v := view{path: "/home", read: func() ([]byte, error) {
		return []byte("28 1 0:30 /@ / rw,relatime shared:1 - btrfs /dev/sda2 rw,subvol=/@\n"), nil
	}}
	// Files of a subvolume have a device that no table shows.
	if m, err := v.find(unix.Mkdev(0, 44)); err != nil || m.fsType != "btrfs" {
		t.Errorf("%+v %v", m, err)
	}
}

func TestViewFindPassesOnWhatCannotBeRead(t *testing.T) {
	v := view{path: "/", read: func() ([]byte, error) { return nil, os.ErrPermission }}
	if _, err := v.find(0); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
	v.read = func() ([]byte, error) { return []byte("no table\n"), nil }
	if _, err := v.find(0); err == nil {
		t.Error("nonsense is a mount table")
	}
}
