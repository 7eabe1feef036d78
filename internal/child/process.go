package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
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
