package storage

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// watchAgain is the wait before a mount table that could not be watched is tried again.
const watchAgain = 10 * time.Second

// watchMounts calls look whenever something was mounted, unmounted or remounted on the machine, until ctx ends.
func watchMounts(ctx context.Context, host *hostfs.Root, look func()) {
	for ctx.Err() == nil {
		if file, err := tableFile(host); err == nil && watches.join(ctx, file, look) == nil {
			return // ctx ended
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}

// watches has one watch for each mount table, however many checks want to know: a watch blocks a thread.
var watches = shared{of: map[string]*watch{}}

type shared struct {
	mu sync.Mutex
	of map[string]*watch
}

// watch waits for changes of one mount table.
type watch struct {
	looks map[*func()]bool // under the lock of shared
	stop  *os.File         // closed when nobody wants to know any more
	ended chan struct{}
}

// join returns nil when ctx ended, or an error when the table cannot be watched (any more).
func (s *shared) join(ctx context.Context, file string, look func()) error {
	s.mu.Lock()
	w := s.of[file]
	if w == nil {
		var err error
		if w, err = s.start(file); err != nil {
			s.mu.Unlock()
			return err
		}
		s.of[file] = w
	}
	w.looks[&look] = true
	s.mu.Unlock()
	var err error
	select {
	case <-ctx.Done():
	case <-w.ended:
		err = fmt.Errorf("watch mount table %s: it ended", file)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(w.looks, &look)
	if len(w.looks) == 0 && s.of[file] == w {
		delete(s.of, file)
		w.stop.Close()
	}
	return err
}

func (s *shared) start(file string) (*watch, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch mount table %s: %w", file, err)
	}
	release := func() { _ = unix.Close(fd) } // nothing was written to it
	stopped, stop, err := os.Pipe()
	if err != nil {
		release()
		return nil, err
	}
	w := &watch{looks: map[*func()]bool{}, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		defer stopped.Close()
		defer release()
		for changed(fd, int(stopped.Fd())) {
			s.tell(w)
		}
	}()
	return w, nil
}

func (s *shared) tell(w *watch) {
	s.mu.Lock()
	var looks []func()
	for look := range w.looks {
		looks = append(looks, *look)
	}
	s.mu.Unlock()
	for _, look := range looks {
		look()
	}
}

// changed waits; false: for nothing any more. A mount table tells by POLLPRI and POLLERR, see proc(5).
func changed(table, stop int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI}, {Fd: int32(stop)}}
		switch _, err := unix.Poll(fds, -1); {
		case err == unix.EINTR:
		case err != nil || fds[1].Revents != 0:
			return false
		default:
			return fds[0].Revents&unix.POLLPRI != 0
		}
	}
}
