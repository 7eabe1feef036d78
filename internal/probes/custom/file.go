package custom

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/storage"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of file.
const (
	FileMissing    = "FileMissing"
	FilePresent    = "FilePresent"
	FileTooOld     = "FileTooOld"
	FileTooSmall   = "FileTooSmall"
	FileContent    = "FileContentWrong"
	FileUnreadable = "FileUnreadable"
)

// fileReasons are API.
var fileReasons = reasons.Table{
	{Name: FileMissing, Severity: reasons.Fatal, Says: "a file that should exist does not", Do: "see what should have made it"},
	{Name: FilePresent, Severity: reasons.Fatal, Says: "a file exists that should not", Do: "see what made it, and why"},
	{Name: FileTooOld, Severity: reasons.Fatal, Says: "a file was not written for longer than it should", Do: "see whether what writes it still runs"},
	{Name: FileTooSmall, Severity: reasons.Fatal, Says: "a file is smaller than it should be", Do: "see whether what writes it came to its end"},
	{Name: FileContent, Severity: reasons.Fatal, Says: "a file does not hold what it should", Do: "look into the file"},
	{Name: FileUnreadable, Severity: reasons.Unknown, Says: "the file could not be looked at", Do: "see the message"},
}

// maxContent is how much of a file or an answer is searched for a pattern, in bytes.
const maxContent = 64 << 10

// FileOptions configure a file check.
type FileOptions struct {
	Path    string        `key:"path" doc:"the machine's path of the file or folder; links are followed" is:"abspath"`
	State   string        `key:"state" doc:"what it should be" oneof:"exists,absent"`
	MaxAge  time.Duration `key:"maxAge" doc:"how long ago it may have been written last; 0s: any time" min:"0s"`
	MinSize probes.Bytes  `key:"minSize" doc:"how large the file must be at least"`
	Content Pattern       `key:"content" doc:"a regular expression that must match within its first 64 KiB; empty: it is not read"`
	Reason  Reason        `key:"reason" doc:"a name of your own for whatever is wrong with the file; empty: the kind's, which tell what it is"`
}

// Validate reports what is missing or contradicts itself.
func (o FileOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if o.Path == "" {
		fault("is missing", `an absolute path without ".."`, "path")
	}
	if o.State == absent && (o.MaxAge != 0 || o.MinSize != 0 || o.Content != "") {
		fault("asks for a file that should not exist to be of some age, size or content", "state: exists", "state")
	}
	o.Reason.validate(fileReasons, fault)
}

// Values of the option state.
const (
	exists = "exists"
	absent = "absent"
)

// OwnReasons declares the user's reason.
func (o FileOptions) OwnReasons() reasons.Table { return o.Reason.declared() }

// File is the kind "file": is there a file as it should be, or none?
//
// A file on a mount that depends on a server or a process is asked for in the prober child first, so that a dead mount
// costs the agent no thread.
var File = probes.Define(probes.Kind{
	Name:        "file",
	Condition:   health.AggregateType,
	Description: "Looks whether a file exists, or does not, and at its age, size and content.",
	Reasons:     fileReasons,
	Interval:    60 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
	Template:    true,
}, func() FileOptions { return FileOptions{State: exists} }, func(env probes.Env, o FileOptions) probes.Probe {
	return fileLook{host: env.Host, files: env.Files, FileOptions: o}
})

type fileLook struct {
	host  *hostfs.Root
	files probes.Files
	FileOptions
}

func (l fileLook) Run(ctx context.Context) health.Result {
	if l.files != nil && storage.Dependent(l.host, l.Path) {
		if _, err := l.files.Statfs(ctx, l.host.Path(l.Path)); errors.Is(err, probes.ErrHung) {
			return probes.Because(fileReasons, FileUnreadable, "%s: its file system does not answer", l.Path)
		}
	}
	return l.Reason.instead(l.look(), FileMissing, FilePresent, FileTooOld, FileTooSmall, FileContent)
}

func (l fileLook) look() health.Result {
	st, err := l.host.Stat(l.Path)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case err != nil && !missing:
		return probes.Because(fileReasons, FileUnreadable, "%v", err)
	case missing && l.State == absent:
		return probes.OK("%s does not exist", l.Path)
	case missing:
		return probes.Because(fileReasons, FileMissing, "%s does not exist", l.Path)
	case l.State == absent:
		return probes.Because(fileReasons, FilePresent, "%s exists", l.Path)
	case l.MaxAge > 0 && time.Since(st.ModTime()) > l.MaxAge:
		return probes.Because(fileReasons, FileTooOld, "%s was not written for more than %s", l.Path, l.MaxAge)
	case st.Size() < int64(l.MinSize):
		return probes.Because(fileReasons, FileTooSmall, "%s is smaller than %s", l.Path, l.MinSize)
	case l.Content == "":
		return probes.OK("%s is as it should be", l.Path)
	case !st.Mode().IsRegular():
		return probes.Because(fileReasons, FileUnreadable, "%s is not a regular file", l.Path)
	}
	f, err := l.host.Open(l.Path)
	if err != nil {
		return probes.Because(fileReasons, FileUnreadable, "%v", err)
	}
	defer f.Close()
	return l.judgeContent(f)
}

func (l fileLook) judgeContent(f *os.File) health.Result {
	content, err := io.ReadAll(io.LimitReader(f, maxContent))
	switch {
	case err != nil:
		return probes.Because(fileReasons, FileUnreadable, "%v", err)
	case !l.Content.compile().Match(content):
		return probes.Because(fileReasons, FileContent, "%s does not match %q", l.Path, string(l.Content))
	default:
		return probes.OK("%s is as it should be", l.Path)
	}
}
