package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Result is how a transient unit ended.
type Result struct {
	// Succeeded : the command ran and exited with status 0.
	Succeeded bool
	// Reason is systemd's word for what happened: success, exit-code, signal, timeout, oom-kill, resources, …; or the job's: canceled, dependency.
	Reason string
	// ExitCode is the command's exit status, or the number of the signal that killed it when Reason is signal.
	ExitCode int
}

// Bounds of what is done about a unit beyond its own time.
const (
	// stopLimit is the time between SIGTERM and SIGKILL.
	stopLimit = 5 * time.Second
	// pollEvery is how often the connection is looked at while a unit runs, since a lost one drops the end of the job.
	pollEvery = time.Second
	// cleanupLimit bounds the calls that clean up after a unit whose caller has gone.
	cleanupLimit = 5 * time.Second
)

// ErrOutcomeUnknown says that the connection was lost while a unit ran: it may have run to its end, or not.
var ErrOutcomeUnknown = errors.New("lost the connection to systemd while the unit ran; its outcome is unknown")

// RunTransient runs argv on the machine as the transient service name (with the suffix .service), and waits for its end.
// argv[0] is an absolute path on the machine; no shell is involved. ctx must have a deadline, which systemd enforces as
// well, so that the command does not outlive it by more than stopLimit even if this process dies. A result that is not
// Succeeded is no error; an error says that it could not be run or that its end was not seen.
func (b *Bus) RunTransient(ctx context.Context, name string, argv ...string) (Result, error) {
	deadline, ok := ctx.Deadline()
	if !ok || len(argv) == 0 {
		return Result{}, fmt.Errorf("run unit %s: a deadline and a command are needed", name)
	}
	conn, err := b.connection(ctx)
	if err != nil {
		return Result{}, err
	}
	ended := make(chan string, 1) // buffered: the connection's dispatcher sends while it holds a lock
	properties := oneshot(name, argv, time.Until(deadline))
	if _, err := conn.StartTransientUnitContext(ctx, name, "fail", properties, ended); err != nil {
		return Result{}, fmt.Errorf("start unit %s: %w", name, err)
	}
	job, err := b.await(ctx, conn, name, ended)
	if err != nil {
		return Result{}, err
	}
	return outcome(ctx, conn, name, job)
}

// oneshot describes a service whose start job ends when its command has. Success leaves nothing behind; of a failure
// the unit and its exit status stay (CollectMode=inactive) until outcome has read them.
func oneshot(name string, argv []string, limit time.Duration) []dbus.Property {
	property := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	return []dbus.Property{
		dbus.PropDescription("Fettle: " + name),
		dbus.PropType("oneshot"),
		dbus.PropExecStart(literal(argv), false),
		property("CollectMode", "inactive"),
		// Not RuntimeMaxUSec: it has no effect on a oneshot service.
		property("TimeoutStartUSec", uint64(max(limit, time.Millisecond)/time.Microsecond)),
		property("TimeoutStopUSec", uint64(stopLimit/time.Microsecond)),
		property("StandardOutput", "journal"),
		property("StandardError", "journal"),
	}
}

// literal keeps systemd from replacing $NAME in arguments, which it does without a shell too.
func literal(argv []string) []string {
	out := []string{argv[0]}
	for _, a := range argv[1:] {
		out = append(out, strings.ReplaceAll(a, "$", "$$"))
	}
	return out
}

// await waits for the start job and gives its result. A unit whose caller gives up is stopped.
func (b *Bus) await(ctx context.Context, conn *dbus.Conn, name string, ended <-chan string) (job string, err error) {
	// systemd reports the end of a unit that ran into its limit only after it has stopped it.
	patience, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			time.AfterFunc(2*stopLimit, cancel)
			return
		}
		cancel()
	})()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case job := <-ended:
			return job, nil
		case <-patience.Done():
			abandon(context.WithoutCancel(ctx), conn, name)
			return "", fmt.Errorf("run unit %s: %w", name, ctx.Err())
		case <-poll.C:
			if !conn.Connected() {
				b.lost(conn)
				return "", fmt.Errorf("run unit %s: %w", name, ErrOutcomeUnknown)
			}
		}
	}
}

// outcome says how the unit ended, and clears it away when it failed. A job that was done needs no look: the start of a
// oneshot service is done only when its command exited with status 0, and the unit is gone by then.
func outcome(ctx context.Context, conn *dbus.Conn, name, job string) (Result, error) {
	if job == "done" {
		return Result{Succeeded: true, Reason: "success"}, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit+2*stopLimit)
	defer cancel()
	properties, err := stopped(ctx, conn, name)
	if err != nil {
		return Result{}, fmt.Errorf("read how unit %s ended: %w", name, err)
	}
	if properties["ActiveState"] != "failed" {
		return Result{Reason: job}, nil // stopped by someone else, say
	}
	reason, _ := properties["Result"].(string)
	code, _ := properties["ExecMainStatus"].(int32)
	if err := conn.ResetFailedUnitContext(ctx, name); err != nil {
		return Result{}, fmt.Errorf("clear away unit %s: %w", name, err)
	}
	return Result{Reason: reason, ExitCode: int(code)}, nil
}

// stopped waits until the unit has stopped, which a unit whose job was canceled may be about to, and gives its
// properties.
func stopped(ctx context.Context, conn *dbus.Conn, name string) (map[string]any, error) {
	for {
		properties, err := conn.GetAllPropertiesContext(ctx, name)
		if err != nil {
			return nil, err
		}
		if state := properties["ActiveState"]; state == "inactive" || state == "failed" {
			return properties, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// abandon stops a unit nobody waits for any more. What goes wrong here has no one to be told; the unit's own limit ends
// it all the same.
func abandon(ctx context.Context, conn *dbus.Conn, name string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	ended := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", ended); err == nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	_ = conn.ResetFailedUnitContext(ctx, name)
}
