// Package process runs child programs that never outlive the program that started them, not even when it is killed
// with SIGKILL: the kernel kills the children then.
//
// It is for the real parts that tests start (control plane, machines, virtual machines). Linux only.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Command is the program (a path, or a name looked up in PATH) and its arguments.
	Command []string
	// Env is the whole environment; nil passes on our own.
	Env []string
	// Dir is the working folder; empty is our own.
	Dir string
	// Log is the file that standard output and error are appended to; empty throws them away.
	Log string
}

// Process is a running or ended child. Its methods may be called from any goroutine.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read it only once done is closed
}

// Start starts the child in a process group of its own (so that Ctrl-C reaches only us and the order of stopping is
// ours).
func Start(spec Spec) (*Process, error) {
	if len(spec.Command) == 0 {
		return nil, fmt.Errorf("start a process: no command given")
	}
	cmd := exec.Command(spec.Command[0], spec.Command[1:]...) //nolint:noctx // it lives until Stop, Kill or our own end
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{name: filepath.Base(spec.Command[0]), log: spec.Log, cmd: cmd, done: make(chan struct{})}
	if spec.Log != "" {
		file, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open the log of %s: %w", p.name, err)
		}
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	}
	if err := startOnLastingThread(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the child's process ID, also after it ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode waits for the end and returns the exit status, -1 when a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Failure is nil while the child runs; once it ended it says how, with the end of its log.
func (p *Process) Failure() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "ended with status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s: %s\n%s", p.name, how, p.LogTail())
}

// LogTail is the last 4 KiB of the child's log.
func (p *Process) LogTail() string {
	const limit = 4096
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-limit):])
}

// Signal sends a signal to the child alone; to one that has ended it does nothing.
func (p *Process) Signal(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // the only failure is that it has ended
}

// Kill ends the child and everything in its process group at once, and waits for the child's end.
func (p *Process) Kill() {
	select {
	case <-p.done: // its group number may be in use again
	default:
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	}
	<-p.done
}

// Stop asks the child to end (SIGTERM), kills it when it has not after grace, and waits for its end.
func (p *Process) Stop(grace time.Duration) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	p.Kill()
}

// The kernel sends the parent-death signal when the thread that forked ends, not the process, and the Go runtime
// ends threads. All children are therefore forked by one goroutine that is locked to its thread for ever.
var startOnLastingThread = func() func(*exec.Cmd) error {
	type start struct {
		cmd    *exec.Cmd
		result chan error
	}
	starts := make(chan start)
	run := sync.OnceFunc(func() {
		go func() {
			runtime.LockOSThread()
			for s := range starts {
				s.result <- s.cmd.Start()
			}
		}()
	})
	return func(cmd *exec.Cmd) error {
		run()
		s := start{cmd: cmd, result: make(chan error)}
		starts <- s
		return <-s.result
	}
}()
