package kernel

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of clock.
const (
	ClockUnsynchronised = "ClockUnsynchronised"
	ClockErrorLarge     = "ClockErrorLarge"
	ClockUnreadable     = "ClockUnreadable"
)

// clockReasons are API.
var clockReasons = reasons.Table{
	{Name: ClockUnsynchronised, Severity: reasons.Degraded, Says: "nothing keeps the machine's clock in step: the kernel knows no bound of its error", Do: "see whether a time service runs and reaches its servers: timedatectl, chronyc tracking, ntpq -p"},
	{Name: ClockErrorLarge, Severity: reasons.Degraded, Says: "the machine's clock was in step, and has not been set right for so long that it may be off by more than is allowed", Do: "see whether the time service still reaches its servers: timedatectl timesync-status, chronyc sources, ntpq -p"},
	{Name: ClockUnreadable, Severity: reasons.Unknown, Says: "the kernel did not tell how good its clock is", Do: "allow the agent the system call adjtimex: with systemd no ProtectClock= and SystemCallFilter= with adjtimex; in a container a seccomp profile that has it"},
}

// ClockOptions configure clock.
type ClockOptions struct {
	MaxError time.Duration `key:"maxError" doc:"degraded when the clock may be off by more than this" min:"10ms" max:"16s"`
}

// unbounded is the error from which on the kernel knows nothing of its clock (NTP_PHASE_LIMIT): what it starts with, what
// setting the clock by hand leads to, and what it comes to 9 hours after the last word of a time service, since it adds
// 500 µs a second.
const unbounded = 16 * time.Second

// Clock is the check "clock": is the machine's clock kept in step?
//
// It asks the kernel with adjtimex(2), which changes nothing when nothing is asked for and then needs no privilege. What
// counts is the maximum error, as for timedatectl, not the flag STA_UNSYNC: chrony leaves that set on purpose where it
// must not have the kernel write the hardware clock (no rtcsync).
//
// The default bound of 5 s is below what follows from three hours without a time server. It is well above what there may
// be in operation: systemd-timesyncd asks every 34 minutes at the longest, in which the kernel comes to 1 s.
//
// A machine that is a container itself and may not ask has its host's clock, and the check does not apply.
var Clock = probes.Define(probes.Kind{
	Name:        "clock",
	Condition:   "fettle.dev/KernelReady",
	Description: "Asks the kernel whether a time service keeps its clock in step, and how far it may be off.",
	Reasons:     clockReasons,
	Interval:    60 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
}, func() ClockOptions { return ClockOptions{MaxError: 5 * time.Second} }, func(env probes.Env, o ClockOptions) probes.Probe {
	return clockLook{host: env.Host, ClockOptions: o, maxError: readMaxError}
})

type clockLook struct {
	host *hostfs.Root
	ClockOptions
	maxError func() (time.Duration, error)
}

// readMaxError asks the kernel how far its clock may be off.
func readMaxError() (time.Duration, error) {
	var t unix.Timex // Modes 0: nothing is to be changed
	if _, err := unix.Adjtimex(&t); err != nil {
		return 0, err
	}
	return time.Duration(t.Maxerror) * time.Microsecond, nil
}

// containerPath is where systemd, as a container's init, notes what runs the container.
const containerPath = "/run/systemd/container"

func (l clockLook) Run(context.Context) health.Result {
	off, err := l.maxError()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		if _, failed := l.host.Stat(containerPath); failed == nil {
			return probes.NotApplicable("the machine is a container, whose clock is its host's")
		}
		return probes.Because(clockReasons, ClockUnreadable, "adjtimex is not allowed: %v", err)
	case err != nil:
		return probes.Because(clockReasons, ClockUnreadable, "adjtimex: %v", err)
	}
	return l.judge(off)
}

func (o ClockOptions) judge(off time.Duration) health.Result {
	switch {
	case off >= unbounded:
		return probes.Because(clockReasons, ClockUnsynchronised, "no time service has set the clock right")
	case off > o.MaxError:
		return probes.Because(clockReasons, ClockErrorLarge, "the clock may be off by more than %s", o.MaxError)
	}
	return probes.OK("the clock is in step, within %s", o.MaxError)
}
