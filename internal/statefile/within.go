package statefile

import (
	"errors"
	"sync"
	"time"
)

// ErrHangs says that the file system of a folder did not answer in time, or has not answered an earlier call yet.
var ErrHangs = errors.New("the file system does not answer")

// patience bounds each call, in wall time. It is shorter than the time that an agent is given to end.
const patience = 7 * time.Second

// overdue counts, by folder, the calls that nobody waits for any more and that have not ended.
var overdue = struct {
	sync.Mutex
	in map[string]int
}{in: map[string]int{}}

// within has the folder dir worked on, and does not wait for that longer than patience. What is overdue goes on, and ends
// when the file system answers or the process ends. Until then every other call for the folder fails at once, so that a
// disk that hangs costs each caller little, threads do not pile up, and nothing is written in another order. What work
// gives belongs to the caller unless the error is ErrHangs.
func within(dir string, work func() error) error {
	overdue.Lock()
	hangs := overdue.in[dir] > 0
	overdue.Unlock()
	if hangs {
		return ErrHangs
	}
	ended := make(chan error, 1)
	go func() { ended <- work() }()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
	}
	overdue.Lock()
	overdue.in[dir]++
	overdue.Unlock()
	go func() {
		<-ended //nolint:errcheck // nobody asks for it any more
		overdue.Lock()
		defer overdue.Unlock()
		if overdue.in[dir]--; overdue.in[dir] == 0 {
			delete(overdue.in, dir)
		}
	}()
	return ErrHangs
}
