package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// mount is what the check needs of one mount.
type mount struct {
	fsType string
	// readOnly is the mount option that says that nothing can be written, "" when none does.
	readOnly string
}

// initialPIDNamespace is the inode of the first PID namespace, PROC_PID_INIT_INO in the kernel's proc_ns.h.
const initialPIDNamespace = "pid:[4026531836]"

// view is one mount table and how to read it.
type view struct {
	read func() ([]byte, error)
	// path is the looked-at path as the table names it.
	path string
	// own: the table is of this process's mount namespace, where a mount may be read-only by our own doing (a container
	// that has the host mounted read-only, a unit with ProtectSystem). Then only what holds for the file system itself
	// counts.
	own bool
}

// mountOf finds the mount that holds a host path without links, in the first of these tables that shows it:
//
//   - /proc/1/mountinfo under the host root: the machine's init sees mounts as the machine does. A container that mounts
//     the host's root recursively has it.
//   - this process's /proc/1/mountinfo, if the process is in the machine's PID namespace (hostPID).
//   - this process's own table. Here the option "ro" counts only if it is the file system's: a kernel that gave up on a
//     file system, or `mount -o remount,ro`, sets that; a read-only bind mount does not.
//
// A table of somebody else's root is told by the device of the mount, which must be that of the path.
func mountOf(host *hostfs.Root, path string) (mount, error) {
	real := host.Path(path)
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return mount{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	views := []view{{read: func() ([]byte, error) { return host.ReadFile("/proc/1/mountinfo") }, path: path}}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns == initialPIDNamespace && !host.IsMachine() {
		views = append(views, view{read: func() ([]byte, error) { return os.ReadFile("/proc/1/mountinfo") }, path: path})
	}
	views = append(views, view{read: func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }, path: real, own: true})
	var failed error
	for _, v := range views {
		m, err := v.find(st.Dev)
		if err == nil {
			return m, nil
		}
		failed = errors.Join(failed, err)
	}
	return mount{}, fmt.Errorf("no mount table shows %s: %w", path, failed)
}

var errOtherDevice = errors.New("the mount has another device than the path")

func (v view) find(device uint64) (mount, error) {
	table, err := v.read()
	if err != nil {
		return mount{}, err
	}
	at, err := holding(table, v.path)
	if err != nil {
		return mount{}, err
	}
	// Subvolumes of btrfs have devices of their own, which mount tables do not show.
	if unix.Mkdev(uint32(at.Major), uint32(at.Minor)) != device && at.FSType != "btrfs" {
		return mount{}, errOtherDevice
	}
	options := strings.Split(at.VFSOptions, ",")
	if !v.own {
		options = append(options, strings.Split(at.Options, ",")...)
	}
	m := mount{fsType: at.FSType}
	for _, o := range options {
		if slices.Contains(writesNothing, o) {
			m.readOnly = o
			break
		}
	}
	return m, nil
}

// writesNothing are the mount options of a file system that takes no writes.
var writesNothing = []string{"ro", "emergency_ro", "shutdown"}

// holding finds the mount that holds a path: the longest mount point above it, the last one of equals, which covers the
// others.
func holding(table []byte, path string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(table), func(m *mountinfo.Info) (skip, stop bool) {
		return !within(path, m.Mountpoint), false
	})
	if err != nil {
		return nil, err
	}
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	if best == nil {
		return nil, errors.New("no mount point above the path")
	}
	return best, nil
}

func within(path, mountpoint string) bool {
	return mountpoint == "/" || path == mountpoint || strings.HasPrefix(path, mountpoint+"/")
}
