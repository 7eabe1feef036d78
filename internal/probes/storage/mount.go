package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// mountReasons are API.
var mountReasons = slices.Concat(reasons.Table{
	missing,
	{Name: WrongSource, Severity: reasons.Fatal, Says: "something else is mounted than expected", Do: "see the message; correct the mount or the expectation"},
	{Name: WrongFSType, Severity: reasons.Fatal, Says: "a file system of another type is mounted than expected", Do: "see the message; correct the mount or the expectation"},
	readOnly,
	{Name: WrongOptions, Severity: reasons.Fatal, Says: "the mount has other options than expected", Do: "see the message; correct the mount or the expectation"},
	hung,
	{Name: Failing, Severity: reasons.Fatal, Says: "a call that only asks for the size of the file system fails", Do: "see whether the server, process or device behind the mount is gone; unmount it and mount it again"},
	{Name: Frozen, Severity: reasons.Fatal, Says: "the file system answers, but a write does not return", Do: "see whether it was frozen for a snapshot and not thawed, or its device takes no writes"},
	{Name: NotWritable, Severity: reasons.Fatal, Says: "a file could not be made, written, synced, read back and removed", Do: "see the message, and the kernel's log for I/O errors"},
}, fillReasons, reasons.Table{
	unreadable,
	{Name: NotCheckable, Severity: reasons.Unknown, Says: "the agent sees something else there than the machine does, or may not write there itself", Do: "mount the path, writable where writeCheck is on, into the agent's container; look at what hardens its systemd unit"},
})

// Values of the option access.
const (
	readWrite = "readWrite"
	readsOnly = "readOnly"
	anyAccess = "any"
)

// MountOptions configure a mount check. A bound of 0 is off.
type MountOptions struct {
	Path       string   `key:"path" doc:"the mount point, as the mount table shows it: without symbolic links" is:"abspath"`
	Optional   bool     `key:"optional" doc:"nothing is wrong while nothing is mounted there"`
	Source     string   `key:"source" doc:"what must be mounted, as the mount table shows it, or a link below /dev/disk that leads there, or UUID=, LABEL=, PARTUUID= or PARTLABEL= with a value; empty: anything"`
	FSType     string   `key:"fsType" doc:"the type that the file system must have; empty: any"`
	Access     string   `key:"access" doc:"what the mount must allow; a file system that became read-only by an error is found with readWrite" oneof:"readWrite,readOnly,any"`
	Options    []string `key:"options" doc:"options that the mount must have, as the mount table shows them, e.g. nodev"`
	WriteCheck bool     `key:"writeCheck" doc:"make a small file, write it, sync it, read it back and remove it; its name starts with a dot"`
	FillOptions
}

// Validate reports what is missing or contradicts itself.
func (o MountOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if o.Path == "" {
		fault("is missing", `an absolute path without ".."`, "path")
	} else if path.Clean(o.Path) != o.Path {
		fault(fmt.Sprintf("%q is not as a mount table shows it", o.Path), path.Clean(o.Path), "path")
	}
	if o.WriteCheck && o.Access == readsOnly {
		fault("cannot succeed on a mount that must be read-only", "false with access: readOnly", "writeCheck", "access")
	}
	for i, option := range o.Options {
		if option == "" || strings.ContainsAny(option, ", ") {
			fault(fmt.Sprintf("%q is not one option", option), "e.g. nodev", fmt.Sprintf("options[%d]", i))
		}
		if o.Access == readWrite && option == "ro" {
			fault(`"ro" contradicts access: readWrite`, "access: readOnly", fmt.Sprintf("options[%d]", i), "access")
		}
	}
	o.FillOptions.Validate(fault)
}

// Mount is the kind "mount": is a file system mounted as it should be, does it answer, can it be written, and has it
// space and inodes left?
//
// What is mounted comes from the machine's mount table, see machineTable; the mount itself is touched only in the prober
// child, by statfs and, if asked for, by a write check. One that does not return before the look's timeout is a verdict.
var Mount = probes.Define(probes.Kind{
	Name:        "mount",
	Condition:   "fettle.dev/StorageReady",
	Description: "Looks whether a file system is mounted as it should be, answers, takes writes, and has space and inodes left.",
	Reasons:     mountReasons,
	Interval:    60 * time.Second,
	Timeout:     10 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
	Template:    true,
}, func() MountOptions {
	return MountOptions{
		Access:      readWrite,
		FillOptions: defaultFill,
	}
}, func(env probes.Env, o MountOptions) probes.Probe {
	return &mountLook{host: env.Host, files: env.Files, MountOptions: o}
})

type mountLook struct {
	host  *hostfs.Root
	files probes.Files
	MountOptions
	fill
}

// Watch has the check look when something is mounted or unmounted.
func (l *mountLook) Watch(ctx context.Context, look func()) { watchMounts(ctx, l.host, look) }

func (l *mountLook) Run(ctx context.Context) health.Result {
	t, err := machineTable(l.host)
	if err != nil {
		return probes.Because(mountReasons, Unreadable, "%v", err)
	}
	at := t.at(l.Path)
	if at != nil && at.FSType == "autofs" {
		// It is mounted when it is used. What that comes to, the look below finds.
		_, _ = l.statfs(ctx)
		if t, err = machineTable(l.host); err != nil {
			return probes.Because(mountReasons, Unreadable, "%v", err)
		}
		at = t.at(l.Path)
	}
	switch {
	case at == nil && l.Optional:
		return probes.NotApplicable("nothing is mounted at %s", l.Path)
	case at == nil:
		return probes.Because(mountReasons, Missing, "nothing is mounted at %s", l.Path)
	}
	if reason, what := l.judgeTable(t, at, l.device(l.Source)); reason != "" {
		return probes.Because(mountReasons, reason, "%s %s", l.Path, what)
	}
	if l.files == nil {
		return probes.Because(mountReasons, NotCheckable, "%s is not looked at: there is no prober", l.Path)
	}
	st, err := l.statfs(ctx)
	if reason, what := judgeStatfs(at.FSType, st, err); reason != "" {
		return probes.Because(mountReasons, reason, "%s: %s", l.Path, what)
	}
	if l.WriteCheck {
		if reason, what := l.judgeWrite(l.files.WriteCheck(ctx, l.host.Path(l.Path))); reason != "" {
			return probes.Because(mountReasons, reason, "%s: %s", l.Path, what)
		}
	}
	if slices.Contains(neverWritable, at.FSType) {
		return probes.OK("%s is mounted as expected", l.Path)
	}
	if reason, what := l.judge(l.FillOptions, usageFrom(st)); reason != "" {
		return probes.Because(mountReasons, reason, "%s: %s", l.Path, what)
	}
	return probes.OK("%s is mounted as expected and has space and inodes left", l.Path)
}

// statfs leaves half of the look's time to what comes after.
func (l *mountLook) statfs(ctx context.Context) (unix.Statfs_t, error) {
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return l.files.Statfs(ctx, l.host.Path(l.Path))
}

// judgeTable holds what the mount table shows against what is expected. device is where a source that is a link leads.
func (o MountOptions) judgeTable(t table, at *mountinfo.Info, device string) (reason, what string) {
	has := optionsOf(at)
	none := t.writesNothing(at)
	switch {
	case o.Source != "" && at.Source != o.Source && at.Source != device:
		return WrongSource, fmt.Sprintf("is %s, not %s", at.Source, o.Source)
	case o.FSType != "" && at.FSType != o.FSType:
		return WrongFSType, fmt.Sprintf("is of type %s, not %s", at.FSType, o.FSType)
	case o.Access == readWrite && none != "":
		return ReadOnly, fmt.Sprintf("is mounted with the option %s", none)
	case o.Access == readsOnly && none == "":
		return WrongOptions, "can be written"
	}
	for _, option := range o.Options {
		if !slices.Contains(has, option) {
			return WrongOptions, fmt.Sprintf("is mounted without the option %s", option)
		}
	}
	return "", ""
}

// gone are the errors of a file system that lost what is behind it.
var gone = []error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.ESHUTDOWN, unix.EHOSTDOWN, unix.ENXIO, unix.ENODEV, unix.ECONNABORTED, unix.ETIMEDOUT, unix.EUCLEAN}

// judgeStatfs : an agent that is fenced in sees an empty tmpfs in place of what the machine has.
func judgeStatfs(fsType string, st unix.Statfs_t, err error) (reason, what string) {
	switch {
	case err == nil && st.Type == unix.TMPFS_MAGIC && fsType != "tmpfs" && fsType != "devtmpfs":
		return NotCheckable, "the agent sees a tmpfs there, the machine " + fsType
	case err == nil:
		return "", ""
	case errors.Is(err, probes.ErrHung):
		return Hung, "statfs does not return"
	case slices.ContainsFunc(gone, func(e error) bool { return errors.Is(err, e) }):
		return Failing, fmt.Sprintf("statfs: %v", cause(err))
	default:
		return Unreadable, fmt.Sprintf("statfs: %v", cause(err))
	}
}

// judgeWrite tells what the machine cannot do from what only the agent cannot.
func (l *mountLook) judgeWrite(err error) (reason, what string) {
	var step string
	if at := pathError(err); at != nil {
		step = at.Op + " it: "
	}
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, probes.ErrHung):
		return Frozen, "it answers, but a write does not return"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS) && !l.host.IsMachine():
		return NotCheckable, "the agent may not write there: " + step + cause(err).Error()
	case pathError(err) == nil:
		return Unreadable, err.Error()
	default:
		return NotWritable, step + cause(err).Error()
	}
}

// device is where the links lead by which udev names a disk, "" where none is meant. It reads only /dev.
func (l *mountLook) device(source string) string {
	for tag, folder := range map[string]string{"UUID=": "by-uuid", "LABEL=": "by-label", "PARTUUID=": "by-partuuid", "PARTLABEL=": "by-partlabel"} {
		if value, found := strings.CutPrefix(source, tag); found {
			source = path.Join("/dev/disk", folder, value)
		}
	}
	if !strings.HasPrefix(source, "/dev/") {
		return ""
	}
	resolved, err := l.host.Resolve(source)
	if err != nil {
		return ""
	}
	return resolved
}
