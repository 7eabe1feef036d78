// Package hostfs reads the machine's files by the paths the machine knows them by.
//
// The same code runs on the machine, where the root is "/", and in a container that has the machine's root mounted, say,
// at /host: "/etc/cni/net.d" means the machine's folder in both. Nothing outside the root can be reached, also not
// through symbolic links; a link that is absolute is read as the machine would read it, from the root. The package knows
// nothing of what the files are for.
package hostfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	// MaxFile bounds what ReadFile takes in, in bytes.
	MaxFile = 4 << 20
	// maxLinks is the number of symbolic links that Linux follows in one path.
	maxLinks = 40
)

// Root is the machine's root folder.
type Root struct {
	dir  string
	root *os.Root
}

// Open opens the folder in which the machine's root is found: "/" on the machine itself.
func Open(dir string) (*Root, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open host root: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open host root: %w", err)
	}
	return &Root{dir: dir, root: root}, nil
}

// Close releases the root folder.
func (r *Root) Close() error { return r.root.Close() }

// IsMachine says whether the root is this process's own root.
func (r *Root) IsMachine() bool { return r.dir == "/" }

// Path gives the path by which this process reaches a host path, for system calls that take one. Links are not
// resolved: pass what Resolve returned when the path may hold absolute links.
func (r *Root) Path(p string) string { return filepath.Join(r.dir, path.Clean("/"+p)) }

// ReadFile reads a regular file of at most MaxFile bytes. Pipes and devices are refused without opening them for
// longer than it takes to see what they are.
func (r *Root) ReadFile(p string) ([]byte, error) {
	f, err := r.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, named(p, err)
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: p, Err: ErrNotRegular}
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, named(p, err)
	}
	if len(content) > MaxFile {
		return nil, &fs.PathError{Op: "read", Path: p, Err: ErrTooLarge}
	}
	return content, nil
}

// Errors of ReadFile, wrapped in an *fs.PathError.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = fmt.Errorf("larger than %d bytes", MaxFile)
)

// ReadDir lists a folder, sorted by name.
func (r *Root) ReadDir(p string) ([]fs.DirEntry, error) {
	f, err := r.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, named(p, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Open opens a file or folder for reading. It does not wait for the other end of a pipe.
func (r *Root) Open(p string) (*os.File, error) {
	resolved, err := r.Resolve(p)
	if err != nil {
		return nil, err
	}
	f, err := r.root.OpenFile(relative(resolved), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, named(p, err)
	}
	return f, nil
}

// Stat describes what the path leads to, links followed.
func (r *Root) Stat(p string) (fs.FileInfo, error) {
	resolved, err := r.Resolve(p)
	if err != nil {
		return nil, err
	}
	st, err := r.root.Lstat(relative(resolved))
	if err != nil {
		return nil, named(p, err)
	}
	return st, nil
}

// Resolve follows every symbolic link in a host path as the machine would, and gives the host path without links. Parts
// that do not exist are kept as they are, so that opening the result says so.
func (r *Root) Resolve(p string) (string, error) {
	done, todo := "/", strings.Split(p, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		st, err := r.root.Lstat(relative(next))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return path.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", named(p, err)
		case st.Mode()&fs.ModeSymlink == 0:
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: p, Err: syscall.ELOOP}
		}
		target, err := r.root.Readlink(relative(next))
		if err != nil {
			return "", named(p, err)
		}
		if path.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// relative turns an absolute host path into what os.Root takes.
func relative(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p != "" {
		return p
	}
	return "."
}

// named gives an error the host path that was asked for, and a plain word for the call that failed.
func named(p string, err error) error {
	failed := &fs.PathError{Op: "open", Path: p, Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		failed.Op, failed.Err = at.Op, at.Err
	}
	if plain, found := plainOps[failed.Op]; found {
		failed.Op = plain
	}
	return failed
}

// plainOps are the words of os.Root that the reader of a message need not know.
var plainOps = map[string]string{"openat": "open", "statat": "stat", "lstatat": "stat", "lstat": "stat", "readlinkat": "readlink"}
