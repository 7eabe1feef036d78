package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of root-filesystem.
const (
	ReadOnly        = "FilesystemReadOnly"
	SpaceExhausted  = "SpaceExhausted"
	SpaceLow        = "SpaceLow"
	InodesExhausted = "InodesExhausted"
	InodesLow       = "InodesLow"
	Unreadable      = "FilesystemUnreadable"
)

// rootReasons are API.
var rootReasons = reasons.Table{
	{Name: ReadOnly, Severity: reasons.Fatal, Says: "the file system has become read-only", Do: "look for I/O errors in the kernel's log; a file system that the kernel made read-only needs a check or a new disk"},
	{Name: SpaceExhausted, Severity: reasons.Fatal, Says: "hardly any space is free", Do: "remove images, logs and dumps, or enlarge the file system"},
	{Name: InodesExhausted, Severity: reasons.Fatal, Says: "hardly any inodes are free, so that no files can be made although there may be space", Do: "find the folder with very many small files"},
	{Name: SpaceLow, Severity: reasons.Degraded, Says: "little space is free", Do: "remove images, logs and dumps, or enlarge the file system, before it is full"},
	{Name: InodesLow, Severity: reasons.Degraded, Says: "few inodes are free", Do: "find the folder with very many small files"},
	{Name: Unreadable, Severity: reasons.Unknown, Says: "the state of the file system could not be read", Do: "see the message"},
}

// RootOptions configure root-filesystem. A bound of 0 is off. Percentages are of what a process without privileges could
// ever use, as df counts.
type RootOptions struct {
	Path                  string       `key:"path" doc:"a path on the file system to look at" is:"abspath"`
	SpaceDegradedPercent  int          `key:"spaceDegradedPercent" doc:"degraded when less than this share of space is free; 0: off" min:"0" max:"97"`
	SpaceFatalPercent     int          `key:"spaceFatalPercent" doc:"fatal when less than this share of space is free; 0: off" min:"0" max:"97"`
	SpaceDegradedBytes    probes.Bytes `key:"spaceDegradedBytes" doc:"degraded when less than this is free, whatever the share; 0: off"`
	SpaceFatalBytes       probes.Bytes `key:"spaceFatalBytes" doc:"fatal when less than this is free, whatever the share; 0: off"`
	InodesDegradedPercent int          `key:"inodesDegradedPercent" doc:"degraded when less than this share of inodes is free; 0: off" min:"0" max:"97"`
	InodesFatalPercent    int          `key:"inodesFatalPercent" doc:"fatal when less than this share of inodes is free; 0: off" min:"0" max:"97"`
	ExpectReadOnly        bool         `key:"expectReadOnly" doc:"the file system is read-only by design, as on image-based systems: then neither that nor its fill is judged"`
}

// Validate reports fatal bounds that lie above the degraded ones.
func (o RootOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if o.SpaceDegradedPercent > 0 && o.SpaceFatalPercent > o.SpaceDegradedPercent {
		fault(fmt.Sprintf("fatal at %d%% is above degraded at %d%%", o.SpaceFatalPercent, o.SpaceDegradedPercent), "fatal at or below degraded", "spaceFatalPercent", "spaceDegradedPercent")
	}
	if o.SpaceDegradedBytes > 0 && o.SpaceFatalBytes > o.SpaceDegradedBytes {
		fault(fmt.Sprintf("fatal at %s is above degraded at %s", o.SpaceFatalBytes, o.SpaceDegradedBytes), "fatal at or below degraded", "spaceFatalBytes", "spaceDegradedBytes")
	}
	if o.InodesDegradedPercent > 0 && o.InodesFatalPercent > o.InodesDegradedPercent {
		fault(fmt.Sprintf("fatal at %d%% is above degraded at %d%%", o.InodesFatalPercent, o.InodesDegradedPercent), "fatal at or below degraded", "inodesFatalPercent", "inodesDegradedPercent")
	}
}

// RootFilesystem is the check "root-filesystem": can the machine's root file system be written, and has it space and
// inodes left?
//
// Space and inodes come from statfs. Whether it is read-only is read from mount tables, see mountOf for which; besides
// the option "ro" the check knows "emergency_ro" and "shutdown", which newer kernels show for an ext4 that stopped
// taking writes after an error (they leave "ro" out).
//
// File systems that cannot be written by their nature (squashfs, erofs, iso9660 and the like) are not judged.
var RootFilesystem = probes.Define(probes.Kind{
	Name:        "root-filesystem",
	Condition:   "fettle.dev/StorageReady",
	Description: "Looks whether the root file system is writable and has space and inodes left.",
	Reasons:     rootReasons,
	Interval:    60 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
}, func() RootOptions {
	return RootOptions{
		Path:                 "/",
		SpaceDegradedPercent: 10, SpaceFatalPercent: 2,
		InodesDegradedPercent: 10, InodesFatalPercent: 2,
	}
}, func(env probes.Env, o RootOptions) probes.Probe { return &rootLook{host: env.Host, RootOptions: o} })

// rootLook remembers how bad space and inodes were, for the margin above a bound that clearing takes.
type rootLook struct {
	host *hostfs.Root
	RootOptions
	space, inodes level
}

func (l *rootLook) Run(context.Context) health.Result {
	path, err := l.host.Resolve(l.Path)
	if err != nil {
		return probes.Because(rootReasons, Unreadable, "%v", err)
	}
	at, err := mountOf(l.host, path)
	if err != nil {
		return probes.Because(rootReasons, Unreadable, "%v", err)
	}
	if slices.Contains(neverWritable, at.fsType) {
		return probes.NotApplicable("%s is on %s, which is never written", l.Path, at.fsType)
	}
	if at.readOnly != "" {
		if l.ExpectReadOnly {
			return probes.OK("%s is read-only, as expected", l.Path)
		}
		return probes.Because(rootReasons, ReadOnly, "%s is mounted with the option %s", l.Path, at.readOnly)
	}
	used, err := usageOf(l.host.Path(path))
	if err != nil {
		return probes.Because(rootReasons, Unreadable, "statfs %s: %v", l.Path, err)
	}
	return l.judge(used)
}

// neverWritable are file systems that no error made read-only and that are always full.
var neverWritable = []string{"squashfs", "erofs", "iso9660", "cramfs", "romfs", "udf"}

func (l *rootLook) judge(u usage) health.Result {
	space := bounds{
		{level: fatal, percent: l.SpaceFatalPercent, absolute: uint64(l.SpaceFatalBytes)},
		{level: degraded, percent: l.SpaceDegradedPercent, absolute: uint64(l.SpaceDegradedBytes)},
	}
	inodes := bounds{
		{level: fatal, percent: l.InodesFatalPercent},
		{level: degraded, percent: l.InodesDegradedPercent},
	}
	l.space, l.inodes = space.judge(l.space, u.space), inodes.judge(l.inodes, u.inodes)
	switch {
	case l.space == fatal:
		return probes.Because(rootReasons, SpaceExhausted, "%s: %s of space is free", l.Path, lessThan(l.SpaceFatalPercent, l.SpaceFatalBytes))
	case l.inodes == fatal:
		return probes.Because(rootReasons, InodesExhausted, "%s: %s of inodes are free", l.Path, lessThan(l.InodesFatalPercent, 0))
	case l.space == degraded:
		return probes.Because(rootReasons, SpaceLow, "%s: %s of space is free", l.Path, lessThan(l.SpaceDegradedPercent, l.SpaceDegradedBytes))
	case l.inodes == degraded:
		return probes.Because(rootReasons, InodesLow, "%s: %s of inodes are free", l.Path, lessThan(l.InodesDegradedPercent, 0))
	}
	return probes.OK("%s is writable and has space and inodes left", l.Path)
}

// lessThan words the bounds, not the figures: those would change from look to look.
func lessThan(percent int, size probes.Bytes) string {
	var parts []string
	if percent > 0 {
		parts = append(parts, itoa(percent)+"%")
	}
	if size > 0 {
		parts = append(parts, size.String())
	}
	return "less than " + strings.Join(parts, " or ")
}
