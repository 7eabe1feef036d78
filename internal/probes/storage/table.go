package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// table is what is mounted on the machine, by host paths.
type table struct {
	mounts []*mountinfo.Info
	// file is where the table was read, in this process's file system.
	file string
	// own : it is of this process's mount namespace, where mounts may be read-only by our own doing; see view.
	own bool
}

// machineTable reads the first of the tables that mountOf knows which can be read and is of the machine's root, which the
// device of the root tells. It touches no other mount.
func machineTable(host *hostfs.Root) (table, error) {
	const initTable, ownTable = "/proc/1/mountinfo", "/proc/self/mountinfo"
	t, failed := readTable(host.Path(initTable), func() ([]byte, error) { return host.ReadFile(initTable) })
	if failed == nil && t.isOf(host) {
		return t, nil
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns == initialPIDNamespace && !host.IsMachine() {
		t, err := readTable(initTable, func() ([]byte, error) { return os.ReadFile(initTable) })
		if err == nil && t.isOf(host) {
			return t, nil
		}
	}
	t, err := readTable(ownTable, func() ([]byte, error) { return os.ReadFile(ownTable) })
	if err != nil {
		return table{}, fmt.Errorf("no mount table can be read: %w", errors.Join(failed, err))
	}
	t.own = true
	if root := host.Path("/"); root != "/" {
		t.mounts = slices.DeleteFunc(t.mounts, func(m *mountinfo.Info) bool {
			inside := within(m.Mountpoint, root)
			m.Mountpoint = path.Join("/", strings.TrimPrefix(m.Mountpoint, root))
			return !inside
		})
	}
	return t, nil
}

func readTable(file string, read func() ([]byte, error)) (table, error) {
	content, err := read()
	if err != nil {
		return table{}, err
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(content), nil)
	if err != nil {
		return table{}, fmt.Errorf("read mount table %s: %w", file, err)
	}
	return table{mounts: mounts, file: file}, nil
}

// isOf reports whether the table's root is the machine's. Subvolumes of btrfs have devices of their own, which mount
// tables do not show.
func (t table) isOf(host *hostfs.Root) bool {
	root := t.at("/")
	var st unix.Stat_t
	if root == nil || unix.Stat(host.Path("/"), &st) != nil {
		return false
	}
	return unix.Mkdev(uint32(root.Major), uint32(root.Minor)) == st.Dev || root.FSType == "btrfs"
}

// tableFile is the file that machineTable reads at present.
func tableFile(host *hostfs.Root) (string, error) {
	t, err := machineTable(host)
	return t.file, err
}

// at is what is mounted at a path, nil for nothing. Of several the last covers the others.
func (t table) at(mountpoint string) *mountinfo.Info {
	for _, m := range slices.Backward(t.mounts) {
		if m.Mountpoint == mountpoint {
			return m
		}
	}
	return nil
}

// writesNothing is the option of a mount that says that nothing can be written, "" when none does.
func (t table) writesNothing(m *mountinfo.Info) string {
	options := strings.Split(m.VFSOptions, ",")
	if !t.own {
		options = append(options, strings.Split(m.Options, ",")...)
	}
	for _, o := range options {
		if slices.Contains(writesNothing, o) {
			return o
		}
	}
	return ""
}

// optionsOf are the options of the mount and of its file system.
func optionsOf(m *mountinfo.Info) []string {
	return append(strings.Split(m.Options, ","), strings.Split(m.VFSOptions, ",")...)
}

// onDisk are file systems of the machine's own disks, which an error may make read-only.
var onDisk = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs", "vfat", "exfat", "ntfs3", "nilfs2", "ocfs2", "gfs2"}

// overNetwork are file systems that a server answers for. Every call on them may hang.
var overNetwork = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "afs", "9p", "orangefs", "pvfs2"}

// dependent says whether calls on a file system of this type depend on a server, or on a process.
func dependent(fsType string) bool {
	return slices.Contains(overNetwork, fsType) || slices.Contains([]string{"virtiofs", "autofs", "fuse", "fuseblk"}, fsType) || strings.HasPrefix(fsType, "fuse.")
}

// Dependent says whether a host path lies on a file system whose calls depend on a server or a process, so that they may
// hang. It touches no file: the path is not resolved. Where no table can be read the answer is no.
func Dependent(host *hostfs.Root, hostPath string) bool {
	t, err := machineTable(host)
	if err != nil {
		return false
	}
	var best *mountinfo.Info
	for _, m := range t.mounts {
		if within(path.Clean(hostPath), m.Mountpoint) && (best == nil || len(m.Mountpoint) >= len(best.Mountpoint)) {
			best = m
		}
	}
	return best != nil && dependent(best.FSType)
}

// cause is an error without the path of this process's file system, which says nothing to the reader.
func cause(err error) error {
	if at := pathError(err); at != nil {
		return at.Err
	}
	return err
}

func pathError(err error) *fs.PathError {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at
	}
	return nil
}
