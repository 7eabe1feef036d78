package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another live process holds the folder.
var ErrInUse = errors.New("state folder is in use by another process")

// Lock takes the folder for this process, also one that turned read-only, and makes it where there is none. The kernel
// gives it back when the process ends, however it ends. Keep the returned file open for as long as the folder is used.
func Lock(dir string) (*os.File, error) {
	var f *os.File
	err := within(dir, func() (err error) {
		f, err = lock(dir)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock state folder %s: %w", dir, err)
	}
	return f, nil
}

func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if target, linkErr := os.Readlink(dir); linkErr == nil && errors.Is(err, os.ErrExist) { // the kernel says only that there is something
			return nil, fmt.Errorf("it is a link to %s, which is not there: %w", target, err)
		}
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which a disk that takes no writes does not refuse
	if Missing(err) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Writable is nil when this process may write to the folder, as far as can be told without doing it.
func Writable(dir string) error {
	err := within(dir, func() error { return unix.Access(dir, unix.W_OK) })
	if err != nil {
		return fmt.Errorf("write to state folder %s: %w", dir, err)
	}
	return nil
}
