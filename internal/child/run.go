package child

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultOutput is what is kept of each output stream, in bytes.
	DefaultOutput = 4 << 10
	// Flood is how much output, both streams together, a command may write before it is killed, in bytes.
	Flood = 1 << 20
	// orphanGrace bounds the hunt for processes that fled from their group.
	orphanGrace = time.Second
	// drain is how long output is still read that a process holds open which could not be ended.
	drain = 100 * time.Millisecond
)

// Environment is what every command finds, before what its Spec adds. Nothing of the agent's own is passed on: it may
// hold secrets.
var Environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/",
	"LANG=C.UTF-8",
}

// Spec is a command to run.
type Spec struct {
	// Key names the purpose: while a process lives that was started for it and could not be killed, no second one is
	// started. Empty: there is no such limit.
	Key string
	// Argv is the command and its arguments. A command without a slash is looked for in PATH. No shell is involved.
	Argv []string
	// Env are NAME=value entries beyond Environment; of two with the same name the last counts.
	Env []string
	// Dir is the working folder; empty: "/".
	Dir string
	// Output is how much of each stream is kept, in bytes, from the first that is not blank; the rest is read and dropped.
	// Zero: DefaultOutput.
	Output int
}

func (s Spec) dir() string {
	if s.Dir == "" {
		return "/"
	}
	return path.Clean(s.Dir)
}

// environment has each name once: readers differ on which of several counts.
func (s Spec) environment() []string {
	var env []string
	seen := map[string]bool{}
	for _, list := range [][]string{s.Env, Environment} {
		for i := len(list) - 1; i >= 0; i-- {
			if name, _, _ := strings.Cut(list[i], "="); !seen[name] {
				seen[name], env = true, append(env, list[i])
			}
		}
	}
	return env
}

// Outcome is what became of a command.
type Outcome struct {
	// Err : it was not executed. For the command's own part it is an *fs.PathError, e.g. with ENOENT, EACCES or ENOEXEC;
	// else this process could not start any.
	Err error
	// Exit is its exit status, -1 when it ended by a signal or has not ended.
	Exit int
	// Signal that ended it, 0 for none. SIGKILL where it was neither TimedOut nor Flooded came from elsewhere: as a rule
	// from the kernel, for memory.
	Signal syscall.Signal
	// TimedOut : it was killed because the context ended.
	TimedOut bool
	// Flooded : it was killed because it wrote more than Flood.
	Flooded bool
	// Hung : it, or one started before under the same key, was killed and lives on, stuck in a call to the kernel.
	Hung bool
	// Stdout and Stderr are the beginnings of what it wrote, without blanks in front.
	Stdout, Stderr []byte
}

// Run runs a command to its end, or until ctx ends: then the process group is killed at once, without a warning. It
// returns half a second after ctx ended, two at most, whatever the command does, if the machine is not too busy; and as
// soon as the command's first process has ended, whatever that left running in the background, which is killed.
func Run(ctx context.Context, s Spec) Outcome {
	if len(s.Argv) == 0 {
		return Outcome{Err: errors.New("no command"), Exit: -1}
	}
	if stuck.lives(s.Key) {
		return Outcome{Exit: -1, Hung: true}
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Exit: -1, TimedOut: true}
	}
	p, out, err := start(s)
	if err != nil {
		return Outcome{Err: err, Exit: -1}
	}
	o := Outcome{Exit: -1}
	select {
	case <-p.Done():
	case <-ctx.Done():
		o.TimedOut = true
	case <-out.flooded:
		o.Flooded = true
	}
	if !p.End() {
		stuck.add(s.Key, p)
		o.Hung = true
	}
	family.endOrphans(orphanGrace)
	out.finish()
	o.Stdout, o.Stderr = out.stdout.kept, out.stderr.kept
	if o.Hung {
		return o
	}
	status, _ := p.state.Sys().(syscall.WaitStatus)
	switch {
	case status.Exited():
		o.Exit = status.ExitStatus()
		o.Err = readFailure(string(out.report.kept), s)
	case status.Signaled():
		o.Signal = status.Signal()
	}
	if o.Exit >= 0 {
		o.TimedOut, o.Flooded = false, false // it ended by itself just then
	}
	return o
}

// stuck are the processes that could not be killed.
var stuck = survivors{by: map[string]*Process{}}

type survivors struct {
	mu sync.Mutex
	by map[string]*Process
}

func (s *survivors) add(key string, p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" {
		s.by[key] = p
	}
}

func (s *survivors) lives(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.by[key]
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		delete(s.by, key)
		return false
	default:
		return true
	}
}
