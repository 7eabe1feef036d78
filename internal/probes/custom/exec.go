package custom

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of exec.
const (
	ExecFailed      = "ExecFailed"
	ExecHung        = "ExecHung"
	ExecUnknown     = "ExecUnknown"
	ExecKilled      = "ExecKilled"
	ExecFlooded     = "ExecFlooded"
	ExecNotRunnable = "ExecNotRunnable"
)

// execReasons are API.
var execReasons = reasons.Table{
	{Name: ExecFailed, Severity: reasons.Fatal, Says: "the command ended with exit status 1: it found a problem", Do: "see the message, which is what the command said"},
	{Name: ExecHung, Severity: reasons.Fatal, Says: "the command was to be killed and is stuck in a call to the kernel; it is not started again until it is gone", Do: "see in /proc/PID/stack what it waits for, as a rule a dead mount or device; it may take a reboot"},
	{Name: ExecUnknown, Severity: reasons.Unknown, Says: "the command ended with an exit status above 1, or by a signal: it could not tell", Do: "see the message, which is what the command said"},
	{Name: ExecKilled, Severity: reasons.Unknown, Says: "something else killed the command, as a rule the kernel for want of memory", Do: "look in the kernel's log for what was killed for memory"},
	{Name: ExecFlooded, Severity: reasons.Unknown, Says: fmt.Sprintf("the command was killed because it wrote more than %d MiB", child.Flood>>20), Do: "have it say less"},
	{Name: ExecNotRunnable, Severity: reasons.Unknown, Says: "the command could not be executed", Do: "see the message; the path is one of the agent's own file system, which in a container is not the machine's"},
}

// ExecOptions configure an exec check.
type ExecOptions struct {
	Command []string `key:"command" doc:"the command and its arguments; no shell reads them. A command without a slash is looked for in PATH"`
	Env     []string `key:"env" doc:"NAME=value entries of its environment; besides there are only PATH, HOME and LANG" secret:"true"`
	Dir     string   `key:"dir" doc:"the folder it runs in" is:"abspath"`
	Reason  Reason   `key:"reason" doc:"a name of your own for what exit status 1 means; empty: ExecFailed"`
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// Validate reports what cannot be a command or its environment. It shows no value of the environment.
func (o ExecOptions) Validate(fault func(what, allowed string, keys ...string)) {
	const aCommand = "a command and its arguments, e.g. [/usr/local/bin/check-raid, --all]"
	switch {
	case len(o.Command) == 0 || o.Command[0] == "":
		fault("names no command", aCommand, "command")
	case strings.Contains(o.Command[0], "/") && !path.IsAbs(o.Command[0]):
		fault(fmt.Sprintf("%q is a relative path", o.Command[0]), aCommand, "command[0]")
	}
	for i, arg := range o.Command {
		if strings.ContainsRune(arg, 0) {
			fault("holds a zero byte", "text without zero bytes", fmt.Sprintf("command[%d]", i))
		}
	}
	for i, entry := range o.Env {
		if !envName.MatchString(entry) || strings.ContainsRune(entry, 0) {
			fault("is not of the form NAME=value", "NAME=value, e.g. LEVEL=2", fmt.Sprintf("env[%d]", i))
		}
	}
	o.Reason.validate(execReasons, fault)
}

// OwnReasons declares the user's reason.
func (o ExecOptions) OwnReasons() reasons.Table { return o.Reason.declared() }

// Exec is the kind "exec": what does a command of the user's say?
//
// Exit status 0 is well, 1 is a problem, anything else means that the command could not tell: the contract of the custom
// plugins of node-problem-detector. What it writes to standard output is the message, of which 4 KiB count from the first
// character that is not blank; where that is empty, standard error is. Of a message in
// which only numbers change not every one is published; see health.Wording.
//
// At the look's timeout the command is killed with its whole process group, and so is what it leaves running in the
// background when it ends. The command runs as the agent does, with the same privileges, in the agent's root folder: in
// a container it must be in the image or on a volume. It cannot gain privileges (no setuid).
var Exec = probes.Define(probes.Kind{
	Name:        "exec",
	Condition:   health.AggregateType,
	Description: "Runs a command: exit status 0 is well, 1 is a problem, anything else says that it could not tell. Its output is the message.",
	Reasons:     execReasons,
	Interval:    60 * time.Second,
	Timeout:     10 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 1},
	Template:    true,
}, func() ExecOptions { return ExecOptions{Dir: "/"} }, func(_ probes.Env, o ExecOptions) probes.Probe { return execLook{o} })

type execLook struct{ ExecOptions }

func (l execLook) Run(ctx context.Context) health.Result {
	o := child.Run(ctx, child.Spec{Key: strings.Join(l.Command, "\x00"), Argv: l.Command, Env: l.Env, Dir: l.Dir})
	return l.Reason.instead(judgeOutcome(l.Command[0], o), ExecFailed)
}

func judgeOutcome(command string, o child.Outcome) health.Result {
	said := cmp.Or(health.Normalise(string(o.Stdout)), health.Normalise(string(o.Stderr)))
	switch {
	case o.Hung:
		return probes.Because(execReasons, ExecHung, "%s was killed and does not end", command)
	case o.Err != nil:
		return probes.Because(execReasons, ExecNotRunnable, "%v", o.Err)
	case o.TimedOut:
		return probes.Because(probes.Common, health.ReasonTimeout, "%s did not end in time and was killed", command)
	case o.Flooded:
		return probes.Because(execReasons, ExecFlooded, "%s wrote without end and was killed", command)
	case o.Signal == syscall.SIGKILL:
		return probes.Because(execReasons, ExecKilled, "%s was killed", command)
	case o.Signal != 0:
		return probes.Because(execReasons, ExecUnknown, "%s", cmp.Or(said, command+" ended by "+unix.SignalName(o.Signal)))
	case o.Exit == 0:
		return probes.OK("%s", cmp.Or(health.Normalise(string(o.Stdout)), command+" finds nothing wrong"))
	case o.Exit == 1:
		return probes.Because(execReasons, ExecFailed, "%s", cmp.Or(said, command+" ended with exit status 1"))
	default:
		return probes.Because(execReasons, ExecUnknown, "%s", cmp.Or(said, fmt.Sprintf("%s ended with exit status %d", command, o.Exit)))
	}
}
