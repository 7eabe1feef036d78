package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrInUse says that another live process holds the folder.
var ErrInUse = errors.New("state folder is in use by another process")

// Lock takes the folder for this process, also one that turned read-only. The kernel gives it back when the process
// ends, however it ends. Keep the returned file open for as long as the folder is used.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which a disk that takes no writes does not refuse
	if Missing(err) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("lock state folder %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		closeErr := f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock state folder %s: %w", dir, ErrInUse)
		}
		return nil, fmt.Errorf("lock state folder %s: %w", dir, errors.Join(err, closeErr))
	}
	return f, nil
}
