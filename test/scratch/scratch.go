// Package scratch makes temporary folders that are removed even when the program that made them was killed: each is
// locked by its owner, and whoever makes the next one first removes those that nobody holds any more.
package scratch

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Folder is a temporary folder in use.
type Folder struct {
	path string
	lock *os.File
}

// New makes a folder below the system's temporary folder (a short path: unix sockets lie in it). kind is the first
// part of its name; stale folders of the same kind are removed.
func New(kind string) (*Folder, error) {
	prefix := "fettle-" + kind + "-"
	gate, err := lock(filepath.Join(os.TempDir(), prefix+"lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer gate.Close() // between making and locking a folder nobody may take it for a stale one
	stale, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", "owner.lock"))
	if err != nil {
		return nil, fmt.Errorf("look for stale folders of kind %s: %w", kind, err)
	}
	for _, path := range stale {
		if owner, err := lock(path, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(filepath.Dir(path)) // best effort: it is rubbish of somebody who was killed
			owner.Close()
		}
	}
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	owner, err := lock(filepath.Join(path, "owner.lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &Folder{path: path, lock: owner}, nil
}

// Path is the folder's absolute path.
func (f *Folder) Path() string { return f.path }

// Join is a path below the folder.
func (f *Folder) Join(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	defer f.lock.Close()
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove the temporary folder %s: %w", f.path, err)
	}
	return nil
}

func lock(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}
