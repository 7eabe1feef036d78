package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killGrace is how long a killed process may take to be gone before it is asked what it does: if it is in a sleep that
	// no signal ends, it is stuck. On a busy machine it may just not have had its turn.
	killGrace = 500 * time.Millisecond
	// killPatience is when a killed process counts as stuck whatever it does.
	killPatience = 10 * time.Second
)

// Process is a running child, the leader of a session and process group of its own.
type Process struct {
	Pid int

	done  chan struct{}
	state *os.ProcessState // set before done is closed

	mu     sync.Mutex
	reaped bool // the number may be another process's now
}

// Start runs this process's own program as a child under a name that Early knows. files become its descriptors 0, 1, 2
// and so on; it has no others. env is its whole environment.
//
// The child is killed when this process dies, by whatever. Once it ended, what is left of its process group is killed.
func Start(name string, args, env []string, files ...*os.File) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends a parent's death signal when the thread that forked ends, not the process, so the thread stays
		// for as long as the child does. It has to wait for the child anyway.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		process, err := family.bear(p, func() (*os.Process, error) {
			return os.StartProcess(self, append([]string{name}, args...), &os.ProcAttr{
				Dir: "/", Env: env, Files: files,
				Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
			})
		})
		started <- err
		if err == nil {
			p.wait(process)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	return p, nil
}

// wait returns when the process has ended and its group was killed. The group is killed before its leader is reaped:
// until then its number can be nobody else's.
func (p *Process) wait(process *os.Process) {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.Kill()
	p.mu.Lock()
	p.state, _ = process.Wait() // fails only for what is no child, or was waited for
	p.reaped = true
	p.mu.Unlock()
	family.forget(p)
	close(p.done)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill kills the whole process group at once. It does not wait, and does nothing once the process has ended.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(-p.Pid, unix.SIGKILL) // ESRCH: they ended by themselves
	}
}

// End kills the process group and reports whether the process is gone. When it is not, it is stuck in the kernel, and
// Done tells when that is over.
func (p *Process) End() (gone bool) {
	p.Kill()
	for waited := time.Duration(0); waited < killPatience; waited += killGrace {
		select {
		case <-p.Done():
			return true
		case <-time.After(killGrace):
			if p.InKernel() {
				return false
			}
		}
	}
	return false
}

// Ended says how it ended, e.g. "exit status 2" or "signal: killed". Done must be closed.
func (p *Process) Ended() string { return p.state.String() }

// InKernel reports whether a thread of the process is in a sleep that no signal ends: state D of proc(5).
func (p *Process) InKernel() bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid))
	if err != nil {
		return false
	}
	for _, t := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.Pid, t.Name()))
		// The name, in brackets, may hold anything; the state comes behind it.
		if at := bytes.LastIndexByte(stat, ')'); err == nil && at >= 0 && bytes.HasPrefix(stat[at:], []byte(") D")) {
			return true
		}
	}
	return false
}
