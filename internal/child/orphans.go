package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// family is every child of this process that Start started.
var family kin

type kin struct {
	// birth is held for reading from the fork of a child until it is listed, and for writing while strangers are looked
	// for, so that a newborn child is none.
	birth sync.RWMutex

	mu     sync.Mutex
	living map[int]*Process
	adopts bool
}

func (k *kin) bear(p *Process, fork func() (*os.Process, error)) (*os.Process, error) {
	k.birth.RLock()
	defer k.birth.RUnlock()
	process, err := fork()
	if err != nil {
		return nil, err
	}
	p.Pid = process.Pid
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.living == nil {
		k.living = map[int]*Process{}
	}
	k.living[p.Pid] = p
	return process, nil
}

func (k *kin) forget(p *Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.living, p.Pid)
}

func (k *kin) has(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.living[pid] != nil
}

// Adopt makes this process the parent of all orphans among its descendants. From then on a command's end is also the
// end of those that left its process group, and none of them is left behind as a zombie; without it such processes go
// to init and live on.
//
// It promises that this process starts children only through this package: any other child is taken for an orphan, and
// killed.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	family.mu.Lock()
	defer family.mu.Unlock()
	family.adopts = true
	return nil
}

// endOrphans kills and reaps adopted children until there are none, for at most a while: killing one hands its children
// to us. Those of commands that still run are left alone while they stay in their session.
func (k *kin) endOrphans(atMost time.Duration) {
	k.mu.Lock()
	adopts := k.adopts
	k.mu.Unlock()
	if !adopts {
		return
	}
	// The kernel may leave entries out of a list while one of its processes ends, so it takes two empty ones.
	began, empty := time.Now(), 0
	for pause := time.Millisecond; empty < 2 && time.Since(began) < atMost; {
		if k.killOrphans() {
			empty++
			continue
		}
		empty = 0
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

func (k *kin) killOrphans() (none bool) {
	k.birth.Lock()
	defer k.birth.Unlock()
	none = true
	for _, pid := range children() {
		if k.has(pid) {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && k.has(session) {
			continue
		}
		none = false
		_ = unix.Kill(pid, unix.SIGKILL) // it cannot be another's: the number is free only once we have waited
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return none
}

// children lists the children of all threads.
func children() []int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var found []int
	for _, task := range tasks {
		list, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			if _, gone := os.Stat("/proc/self/task/" + task.Name()); gone == nil {
				return childrenByParent()
			}
			continue // the thread ended
		}
		for _, word := range bytes.Fields(list) {
			if pid, err := strconv.Atoi(string(word)); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// childrenByParent asks every process of the machine for its parent, on kernels without CONFIG_PROC_CHILDREN.
func childrenByParent() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it ended
		}
		// The name, in brackets, may hold anything; behind it come the state and the parent.
		after := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(after) > 1 && string(after[1]) == strconv.Itoa(os.Getpid()) {
			found = append(found, pid)
		}
	}
	return found
}
