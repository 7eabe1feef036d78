package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// fsReasons are API.
var fsReasons = reasons.Table{readOnly, missing, unreadable}

// FSOptions configure filesystems.
type FSOptions struct {
	Fstab  string   `key:"fstab" doc:"the file that says what should be mounted; one that does not exist says nothing" is:"abspath"`
	Ignore []string `key:"ignore" doc:"mount points that are not looked at" is:"abspath"`
}

// Filesystems is the check "filesystems": is every file system on a disk or a server still writable that was, and is all
// mounted that fstab says?
//
// It reads the mount table and fstab, and touches no mount. A kernel that gives up on a file system after an error marks
// it read-only, "emergency_ro" or "shutdown" as a whole, while the mount keeps "rw"; that tells it from one that somebody
// mounted read-only. It also looks at those that are "ro" against what fstab says. Of all mounts of one file system the
// first is named. The root file system has a check of its own.
var Filesystems = probes.Define(probes.Kind{
	Name:        "filesystems",
	Condition:   "fettle.dev/StorageReady",
	Description: "Looks whether file systems became read-only, and whether all is mounted that fstab says.",
	Reasons:     fsReasons,
	Interval:    60 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
}, func() FSOptions { return FSOptions{Fstab: "/etc/fstab"} },
	func(env probes.Env, o FSOptions) probes.Probe { return fsLook{host: env.Host, FSOptions: o} })

type fsLook struct {
	host *hostfs.Root
	FSOptions
}

// Watch has the check look when something is mounted, unmounted or remounted.
func (l fsLook) Watch(ctx context.Context, look func()) { watchMounts(ctx, l.host, look) }

func (l fsLook) Run(context.Context) health.Result {
	t, err := machineTable(l.host)
	if err != nil {
		return probes.Because(fsReasons, Unreadable, "%v", err)
	}
	content, err := l.host.ReadFile(l.Fstab)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return probes.Because(fsReasons, Unreadable, "%v", err)
	}
	entries := parseFstab(string(content))
	if l.inContainer() {
		// Nothing mounts disks there, though a file that came with its image may say so.
		entries = slices.DeleteFunc(entries, fstabEntry.onDevice)
	}
	if at := l.readOnly(t, entries); at != "" {
		return probes.Because(fsReasons, ReadOnly, "%s", at)
	}
	if e := l.missing(t, entries); e != nil {
		return probes.Because(fsReasons, Missing, "nothing is mounted at %s, where %s says %s", e.mountpoint, l.Fstab, e.source)
	}
	return probes.OK("file systems are as writable as they should be, and all is mounted that %s says", l.Fstab)
}

// inContainer says whether the machine is a system container, by the file that systemd makes.
func (l fsLook) inContainer() bool {
	_, err := l.host.Stat("/run/systemd/container")
	return err == nil
}

// readOnly names the first file system that should be writable and is not.
func (l fsLook) readOnly(t table, entries []fstabEntry) string {
	seen := map[string]bool{}
	if root := t.at("/"); root != nil {
		seen[deviceOf(root)] = true
	}
	for _, m := range t.mounts {
		if seen[deviceOf(m)] || slices.Contains(l.Ignore, m.Mountpoint) || !slices.Contains(onDisk, m.FSType) && !slices.Contains(overNetwork, m.FSType) {
			continue
		}
		if option := broken(m, entries); option != "" {
			return fmt.Sprintf("%s has the option %s", m.Mountpoint, option)
		}
	}
	return ""
}

func deviceOf(m *mountinfo.Info) string { return fmt.Sprintf("%d:%d", m.Major, m.Minor) }

// broken is the option by which a mount is not writable that should be, "" when it is as it should be. The mount's own
// options are what was asked for when it was mounted; the file system's are what became of it.
func broken(m *mountinfo.Info, entries []fstabEntry) string {
	asked, became := strings.Split(m.Options, ","), strings.Split(m.VFSOptions, ",")
	for _, option := range []string{"emergency_ro", "shutdown"} {
		if slices.Contains(became, option) {
			return option
		}
	}
	if !slices.Contains(became, "ro") {
		return ""
	}
	intended := slices.Contains(asked, "ro")
	for _, e := range entries {
		if e.mountpoint == m.Mountpoint && e.mustBeMounted() {
			intended = e.has("ro")
		}
	}
	if intended {
		return ""
	}
	return "ro"
}

// missing finds the first entry of fstab that should be mounted and is not.
func (l fsLook) missing(t table, entries []fstabEntry) *fstabEntry {
	for _, e := range entries {
		if !e.mustBeMounted() || slices.Contains(l.Ignore, e.mountpoint) || t.at(e.mountpoint) != nil {
			continue
		}
		// The file may name a mount point through links, which the table does not.
		if resolved, err := l.host.Resolve(e.mountpoint); err != nil || t.at(resolved) == nil {
			return &e
		}
	}
	return nil
}
