package reload

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// folders watches what decides what a path leads to: the folders that hold the file and every link on the way to it, or
// the nearest folder there is. Files themselves are not watched, since they are replaced more often than written: by
// editors, and by kubelets, which swap the folder that a ConfigMap's files are linked through.
type folders struct {
	path    string
	every   time.Duration // from look to look without watches
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil where inotify is not to be had
	said    bool              // that it is not
	// entries are the full names of the file, of the links, and of what is missing.
	entries []string
	// watched has the folders, and which file each was when the watch was set.
	watched map[string]os.FileInfo
}

func newFolders(path string, every time.Duration, log *slog.Logger) *folders {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return &folders{path: path, every: every, log: log, watched: map[string]os.FileInfo{}}
}

// refresh sets watches where they are needed now. It must come before the file is read, else a change in between is
// missed. False: they cannot be had, and the file must be looked at from time to time.
func (f *folders) refresh() bool {
	const rounds = 10 // a path that keeps changing is followed by the events of the watches that are set
	for range rounds {
		before := f.entries
		f.entries = entriesOf(f.path)
		if err := f.watchAll(); err != nil {
			f.lost(err)
			return false
		}
		if slices.Equal(before, f.entries) {
			break
		}
	}
	f.said = false
	return true
}

func (f *folders) watchAll() error {
	if f.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		f.watcher = watcher
	}
	wanted := map[string]bool{}
	for _, entry := range f.entries {
		wanted[filepath.Dir(entry)] = true
	}
	for folder := range f.watched {
		if !wanted[folder] {
			f.forget(folder)
		}
	}
	for folder := range wanted {
		if err := f.watch(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// watch watches a folder, unless it is watched and still the same one.
func (f *folders) watch(folder string) error {
	is, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if was := f.watched[folder]; was != nil && os.SameFile(was, is) {
		return nil
	}
	f.forget(folder)
	if err := f.watcher.Add(folder); err != nil {
		return err
	}
	f.watched[folder] = is
	return nil
}

func (f *folders) forget(folder string) {
	delete(f.watched, folder)
	_ = f.watcher.Remove(folder) // it fails for a folder that is gone, whose watch is too
}

// concerns tells whether the path may lead elsewhere, or to another content, after an event.
func (f *folders) concerns(event fsnotify.Event) bool {
	if f.watched[event.Name] == nil {
		return slices.Contains(f.entries, event.Name)
	}
	if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		f.forget(event.Name)
	}
	return true
}

func (f *folders) events() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

func (f *folders) errors() <-chan error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Errors
}

// errEnded : the kernel's end of the watches is gone.
var errEnded = errors.New("inotify ended")

// lost gives the watches up, until the next refresh.
func (f *folders) lost(err error) {
	f.close()
	f.watcher, f.watched, f.entries = nil, map[string]os.FileInfo{}, nil
	if !f.said {
		f.log.Warn("the configuration cannot be watched, it is read again from time to time", "file", f.path, "every", f.every.String(), "error", err)
	}
	f.said = true
}

func (f *folders) close() {
	if f.watcher != nil {
		_ = f.watcher.Close() // nothing is lost with it
	}
}

// entriesOf walks a path and lists the links on it, and its end: the file, or the first name that is not there.
func entriesOf(path string) []string {
	const mostLinks = 40 // as the kernel's
	var entries []string
	at, rest := "/", names(path)
	for links := 0; len(rest) > 0 && links <= mostLinks; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		entry := filepath.Join(at, name)
		is, err := os.Lstat(entry)
		if err != nil {
			return append(entries, entry)
		}
		if is.Mode()&fs.ModeSymlink == 0 {
			if at = entry; len(rest) == 0 {
				entries = append(entries, entry)
			}
			continue
		}
		links++
		entries = append(entries, entry)
		target, err := os.Readlink(entry)
		if err != nil {
			return entries
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(names(target), rest...)
	}
	return entries
}

// names takes a path apart.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// beingWritten tells whether some process has the file open for writing, as far as that can be known: a lease for reading
// is refused then. A file that is written in place is half a file until it is closed.
func beingWritten(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN)
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}
