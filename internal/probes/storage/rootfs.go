package storage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// rootReasons are API.
var rootReasons = slices.Concat(reasons.Table{readOnly}, fillReasons, reasons.Table{unreadable, hung})

// RootOptions configure root-filesystem. A bound of 0 is off. Percentages are of what a process without privileges could
// ever use, as df counts.
type RootOptions struct {
	Path string `key:"path" doc:"a path on the file system to look at" is:"abspath"`
	FillOptions
	ExpectReadOnly bool `key:"expectReadOnly" doc:"the file system is read-only by design, as on image-based systems: then neither that nor its fill is judged"`
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
		Path:        "/",
		FillOptions: defaultFill,
	}
}, func(env probes.Env, o RootOptions) probes.Probe {
	return &rootLook{host: env.Host, files: env.Files, RootOptions: o}
})

// rootLook remembers how bad space and inodes were, for the margin above a bound that clearing takes.
type rootLook struct {
	host  *hostfs.Root
	files probes.Files
	RootOptions
	fill
}

func (l *rootLook) Run(ctx context.Context) health.Result {
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
	used, err := l.usage(ctx, at.fsType, l.host.Path(path))
	switch {
	case errors.Is(err, probes.ErrHung):
		return probes.Because(rootReasons, Hung, "statfs %s does not return", l.Path)
	case err != nil:
		return probes.Because(rootReasons, Unreadable, "statfs %s: %v", l.Path, cause(err))
	}
	return l.judge(used)
}

// usage asks a disk of the machine itself, and a file system that depends on something else in the prober child. So an
// agent with the usual root has no child.
func (l *rootLook) usage(ctx context.Context, fsType, path string) (usage, error) {
	if l.files == nil || !dependent(fsType) {
		return usageOf(path)
	}
	st, err := l.files.Statfs(ctx, path)
	return usageFrom(st), err
}

// neverWritable are file systems that no error made read-only and that are always full.
var neverWritable = []string{"squashfs", "erofs", "iso9660", "cramfs", "romfs", "udf"}

func (l *rootLook) judge(u usage) health.Result {
	if reason, what := l.fill.judge(l.FillOptions, u); reason != "" {
		return probes.Because(rootReasons, reason, "%s: %s", l.Path, what)
	}
	return probes.OK("%s is writable and has space and inodes left", l.Path)
}
