package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// ExitError says that a command in the guest ran and failed.
type ExitError struct {
	Args   []string
	Code   int // exit status; -1 when a signal ended it
	Signal int
	Stdout string
	Stderr string
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Code < 0 {
		how = fmt.Sprintf("signal %d", e.Signal)
	}
	return fmt.Sprintf("%s: %s: %s", strings.Join(e.Args, " "), how, strings.TrimSpace(e.Stderr+e.Stdout))
}

// A running command is asked after, since the guest agent tells nothing by itself: at first often, then less so.
const (
	pollFirst = 20 * time.Millisecond
	pollLast  = time.Second
)

// Exec runs a program in the guest as root, without a shell, and returns its standard output (at most 16 MiB). A
// program that fails is an *ExitError; any other error means that the outcome is not known, for example because the
// guest was reset. When ctx ends first the program is killed.
func (v *VM) Exec(ctx context.Context, args ...string) (string, error) {
	out, err := v.exec(ctx, nil, args...)
	return string(out), err
}

// ReadFile reads a file of the guest.
func (v *VM) ReadFile(ctx context.Context, file string) ([]byte, error) {
	return v.exec(ctx, nil, "cat", file)
}

// WriteFile writes a file in the guest as a whole: readers see the old one or the new one. It is not synced.
func (v *VM) WriteFile(ctx context.Context, file string, content []byte, mode os.FileMode) error {
	const script = `umask 077; mkdir -p -m 755 "$1"; cat >"$2.new"; chmod "$3" "$2.new"; mv "$2.new" "$2"`
	_, err := v.exec(ctx, content, "sh", "-euc", script, "sh", path.Dir(file), file, fmt.Sprintf("%o", mode.Perm()))
	return err
}

type execStatus struct {
	Exited   bool   `json:"exited"`
	ExitCode int    `json:"exitcode"`
	Signal   int    `json:"signal"`
	OutData  []byte `json:"out-data"`
	ErrData  []byte `json:"err-data"`
}

func (v *VM) exec(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	pid, err := v.start(ctx, stdin, true, args...)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", args[0], v.opts.Name, err)
	}
	status, err := v.wait(ctx, pid)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", args[0], v.opts.Name, err)
	}
	if status.ExitCode != 0 || status.Signal != 0 {
		failed := &ExitError{Args: args, Code: status.ExitCode, Signal: status.Signal, Stdout: string(status.OutData), Stderr: string(status.ErrData)}
		if status.Signal != 0 {
			failed.Code = -1
		}
		return nil, failed
	}
	return status.OutData, nil
}

// spawn runs a program and does not wait for it.
func (v *VM) spawn(ctx context.Context, args ...string) error {
	_, err := v.start(ctx, nil, false, args...)
	return err
}

func (v *VM) start(ctx context.Context, stdin []byte, capture bool, args ...string) (pid int, err error) {
	request := map[string]any{"path": args[0], "arg": args[1:], "capture-output": capture}
	if stdin != nil {
		request["input-data"] = stdin
	}
	var started struct {
		PID int `json:"pid"`
	}
	if err := v.agent.call(ctx, "guest-exec", request, &started); err != nil {
		return 0, err
	}
	return started.PID, nil
}

func (v *VM) wait(ctx context.Context, pid int) (execStatus, error) {
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		var status execStatus
		err := v.agent.call(ctx, "guest-exec-status", map[string]any{"pid": pid}, &status)
		if err == nil && status.Exited {
			return status, nil
		}
		if err != nil && ctx.Err() == nil {
			return execStatus{}, err
		}
		select {
		case <-ctx.Done():
			return execStatus{}, errors.Join(ctx.Err(), v.killInGuest(context.WithoutCancel(ctx), pid))
		case <-time.After(pause):
		}
	}
}

func (v *VM) killInGuest(ctx context.Context, pid int) error {
	_, err := v.start(ctx, nil, false, "kill", "-KILL", fmt.Sprint(pid))
	return err
}
