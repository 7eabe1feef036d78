package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// lingering is how long output is still read after the step has ended, from processes it left behind. They end with the
// unit.
const lingering = time.Second

// Run carries out an order and writes the verdict. When stop is done the step's process group is sent SIGTERM, and waited
// for: who stopped it decides how long. Its output goes to journal too. An error says that the verdict could not be
// written; it is returned all the same.
func Run(stop context.Context, o Order, journal io.Writer) (Verdict, error) {
	v := Verdict{ID: o.ID, Invocation: os.Getenv("INVOCATION_ID"), Began: time.Now(), Exit: -1}
	out, err := openOutput(o, journal)
	if err != nil { // the step is of more use than its log
		out.faults = append(out.faults, err)
	}
	if err := v.run(stop, o, out); err != nil {
		v.Fault = err.Error()
		fmt.Fprintf(&stream{out: out, tag: "[err]", isErr: true}, "fettle: %v\n", err)
	}
	v.Ended, v.Took = time.Now(), time.Since(v.Began)
	var lost error
	if v.Tail, v.Dropped, lost = out.close(); lost != nil && v.Fault == "" {
		v.Fault = fmt.Sprintf("its log is incomplete: %v", lost)
	}
	if err := os.MkdirAll(filepath.Dir(o.Verdict), 0o700); err != nil {
		return v, fmt.Errorf("make the folder of the verdict: %w", err)
	}
	return v, statefile.Write(o.Verdict, format, v)
}

func (v *Verdict) run(stop context.Context, o Order, out *output) error {
	release, err := inhibit(stop, o)
	if err != nil {
		return err
	}
	defer release()
	cmd := exec.Command(o.Argv[0], o.Argv[1:]...) //nolint:noctx // it is ended by hand, see below
	cmd.Dir, cmd.Env = o.Dir, environment(o.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.Image != "" {
		runtime.LockOSThread() // the mounts are this thread's, and what it starts; it ends with this goroutine
		root, remove, err := imageRoot(o.Image)
		defer remove()
		if err != nil {
			return err
		}
		cmd.SysProcAttr.Chroot = root
	}
	cmd.Stdout, cmd.Stderr = &stream{out: out, tag: "[out]"}, &stream{out: out, tag: "[err]", isErr: true}
	cmd.WaitDelay = lingering
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	ended := context.AfterFunc(stop, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended by itself
	})
	err = cmd.Wait()
	v.Stopped = !ended()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("wait for the end: %w", err)
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		v.Signal = status.Signal().String()
	} else {
		v.Exit, v.Succeeded = status.ExitStatus(), o.succeeds(status.ExitStatus())
	}
	return nil
}

func environment(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}
