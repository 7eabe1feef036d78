package kernel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of file-handles.
const (
	FileHandlesExhausted  = "FileHandlesExhausted"
	FileHandlesLow        = "FileHandlesLow"
	FileHandlesUnreadable = "FileHandlesUnreadable"
)

// fileHandlesReasons are API.
var fileHandlesReasons = reasons.Table{
	{Name: FileHandlesExhausted, Severity: reasons.Fatal, Says: "hardly any file or socket can be opened on the machine", Do: "find what has so many files open (lsof, or the entries of /proc/PID/fd), or raise fs.file-max"},
	{Name: FileHandlesLow, Severity: reasons.Degraded, Says: "few more files and sockets can be opened on the machine", Do: "find what has so many files open (lsof, or the entries of /proc/PID/fd), or raise fs.file-max, before there are none left"},
	{Name: FileHandlesUnreadable, Severity: reasons.Unknown, Says: "it could not be read how many files are open and may be", Do: "see the message; the agent needs the machine's /proc"},
}

// FileHandlesOptions configure file-handles. A bound of 0 is off.
type FileHandlesOptions struct {
	DegradedPercent int `key:"degradedPercent" doc:"degraded from this share of fs.file-max on; 0: off" min:"0" max:"100"`
	FatalPercent    int `key:"fatalPercent" doc:"fatal from this share of fs.file-max on; 0: off" min:"0" max:"100"`
}

func (o FileHandlesOptions) bounds() bounds {
	return bounds{low: o.DegradedPercent, exhausted: o.FatalPercent}
}

// Validate reports bounds out of order.
func (o FileHandlesOptions) Validate(fault func(what, allowed string, keys ...string)) {
	o.bounds().validate(fault)
}

// FileHandles is the check "file-handles": can files and sockets still be opened?
//
// It reads /proc/sys/fs/file-nr: handles that are allocated, those of them that are free (always 0 since Linux 2.6), and
// fs.file-max. Processes with CAP_SYS_ADMIN may go beyond that limit; all others fail with ENFILE.
var FileHandles = probes.Define(probes.Kind{
	Name:        "file-handles",
	Condition:   "fettle.dev/KernelReady",
	Description: "Compares the number of open files and sockets with the kernel's limit.",
	Reasons:     fileHandlesReasons,
	Interval:    30 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 2},
}, func() FileHandlesOptions {
	return FileHandlesOptions{DegradedPercent: 80, FatalPercent: 95}
}, func(env probes.Env, o FileHandlesOptions) probes.Probe {
	return &fileHandlesLook{proc: proc{env.Host}, FileHandlesOptions: o}
})

type fileHandlesLook struct {
	proc proc
	FileHandlesOptions
	level level // at the look before
}

func (l *fileHandlesLook) Run(context.Context) health.Result {
	text, err := l.proc.read("sys/fs/file-nr")
	if err != nil {
		return probes.Because(fileHandlesReasons, FileHandlesUnreadable, "%v", err)
	}
	open, err := handlesFrom(text)
	if err != nil {
		return probes.Because(fileHandlesReasons, FileHandlesUnreadable, "%v", err)
	}
	return l.judge(open)
}

func handlesFrom(text string) (fill, error) {
	const path = "/proc/sys/fs/file-nr"
	var n [3]uint64
	fields := strings.Fields(text)
	if len(fields) != len(n) {
		return fill{}, fmt.Errorf("%s: %q is not as it should be", path, text)
	}
	for i, field := range fields {
		var err error
		if n[i], err = parse(path, field); err != nil {
			return fill{}, err
		}
	}
	return fill{used: n[0] - min(n[1], n[0]), limit: n[2]}, nil
}

func (l *fileHandlesLook) judge(open fill) health.Result {
	l.level = l.bounds().judge(l.level, open)
	switch l.level {
	case exhausted:
		return probes.Because(fileHandlesReasons, FileHandlesExhausted, "%d%% or more of fs.file-max in use", l.FatalPercent)
	case low:
		return probes.Because(fileHandlesReasons, FileHandlesLow, "%d%% or more of fs.file-max in use", l.DegradedPercent)
	}
	return probes.OK("files and sockets can be opened")
}
