package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/packages/step"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/internal/systemd"
)

const (
	// outputLimit is how much of a step's output is written down, in bytes.
	outputLimit = 16 << 20
	// defaultGrace is how long a step that is stopped may take where nothing else is said.
	defaultGrace = 30 * time.Second
	// pollEvery is how often a unit is looked at whose verdict does not come.
	pollEvery = time.Second
	// callLimit bounds calls of systemd.
	callLimit = 30 * time.Second
	// slice has all steps, so that all of them together can be bounded.
	slice = "fettle.slice"
)

// base is the environment of every step before that of the plan.
var base = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/root",
	"LANG": "C.UTF-8",
}

// step runs one step, unless a flag says that it ran.
func (s *run) step(ctx context.Context, mode format.Mode, step format.Step) (stages.Result, Note) {
	flag := path.Join(s.folders(s.work).Flags(), s.config.Flag(step))
	previous := s.history().Previous()
	around := format.Surroundings{Folders: s.folders(s.work), Resource: s.work.resource(s.task), Order: s.work.Order, Base: s.environment(step), Package: s.how.Env, Previous: previous}
	env := s.config.Environment(mode, step, around)
	if !s.task.Fresh && step.Skips(mode, env) && s.files.exists(flag) {
		return stages.Succeeded, Note{}
	}
	argv, err := s.config.Resolve(step, env, previous)
	if err != nil {
		return stages.Failed, note(PackageInvalid, "%v", err)
	}
	program := path.Join(env["STEP_ROOT"], step.Path)
	if err := s.executable(program); err != nil {
		return stages.Failed, note(HostUnwritable, "%v", err)
	}
	unit := s.unit(mode)
	order := s.order(unit, step, env, append([]string{program}, argv...))
	result, n := s.supervise(ctx, unit, order)
	if result == stages.Succeeded && !mode.IsCheck() {
		if err := s.files.write(flag, format.FlagContent(step, time.Now())); err != nil {
			return stages.Failed, note(HostUnwritable, "%v", err)
		}
	}
	if result == stages.Failed {
		n.Message = fmt.Sprintf("step %s of %s: %s", step.Name, mode, n.Message)
	}
	return result, n
}

// environment is the base, or what the image asks for where the step runs in it.
func (s *run) environment(step format.Step) map[string]string {
	env := maps.Clone(base)
	if !step.OnHost {
		for _, entry := range s.unpacked.Env {
			if name, value, ok := strings.Cut(entry, "="); ok {
				env[name] = value
			}
		}
	}
	return env
}

// executable makes sure that a step can be executed: images that were built carelessly forget it.
func (s *run) executable(program string) error {
	at, err := s.files.at(program)
	if err != nil {
		return err
	}
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	return os.Chmod(at, info.Mode()|0o111)
}

// unit names the service of the present step of the attempt. The same step of the same attempt has the same name, so that it
// cannot be begun twice.
func (s *run) unit(mode format.Mode) string {
	return fmt.Sprintf("fettle-%s-%s-%s-%d-%s.service", s.work.NodeWright, s.task.Name, mode, s.attempt.Step, s.attempt.mark(s.work.UID))
}

func (s *run) order(unit string, of format.Step, env map[string]string, argv []string) step.Order {
	o := step.Order{
		ID: unit, Argv: argv, Env: env, Dir: env["SKYHOOK_DIR"], ReturnCodes: of.ReturnCodes, Output: outputLimit,
		Log: s.folders(s.work).StepLog(s.config, of, time.Now()), Verdict: s.stepFile(unit, "verdict"),
	}
	if !of.OnHost {
		// It sees the host, and thus the folder that the package was laid out in, under /root.
		o.Image = s.unpacked.Root
		o.Dir, o.Argv[0] = path.Join("/root", o.Dir), path.Join("/root", o.Argv[0])
	}
	if s.how.Inhibit {
		o.Inhibit = fmt.Sprintf("package %s must not be interrupted", s.task.Name)
	}
	return o
}

// supervise launches the service of a step, unless it was launched before, and waits for its verdict.
func (s *run) supervise(ctx context.Context, unit string, order step.Order) (stages.Result, Note) {
	// Whether it was launched before this process began: first the unit, then its verdict. A unit goes only after its
	// verdict is there, so in this order none is missed, and no step is launched a second time.
	now, err := s.stateAtLast(ctx, unit)
	if err != nil {
		return stages.Stopped, note(CalledOff, "")
	}
	if v, err := step.ReadVerdict(order.Verdict); err == nil {
		return s.judge(ctx, unit, order, v)
	}
	left := time.Duration(0)
	if s.how.StageTimeout > 0 {
		if left = s.how.StageTimeout - (s.Uptime() - s.attempt.Began); left <= 0 {
			return stages.Failed, note(DeadlineExceeded, "the attempt took longer than %s", s.how.StageTimeout)
		}
	}
	if !now.Loaded {
		if err := s.launch(ctx, unit, order, left); err != nil {
			return stages.Failed, note(StepFailed, "%v", err)
		}
	}
	v, ended, err := s.await(ctx, unit, order.Verdict)
	switch {
	case err == nil:
		return s.judge(ctx, unit, order, v)
	case ctx.Err() != nil:
		return s.callOff(ctx, unit)
	}
	s.forget(ctx, unit)
	switch ended.Result {
	case "timeout":
		return stages.Failed, note(DeadlineExceeded, "the attempt took longer than %s", s.how.StageTimeout)
	case "", "success":
		return stages.Stopped, note(Interrupted, "the step left no verdict: %v", err)
	}
	return stages.Failed, note(StepFailed, "the supervisor of the step ended as %s", ended.Result)
}

func (s *run) launch(ctx context.Context, unit string, order step.Order, limit time.Duration) error {
	at := s.stepFile(unit, "order")
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	if err := order.Write(at); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	grace := s.how.GracefulShutdown
	if grace == 0 {
		grace = defaultGrace
	}
	res := s.how.Resources
	service := systemd.Service{
		Name: unit, Argv: []string{s.Step, at}, Description: fmt.Sprintf("Fettle: %s of %s", s.task, s.work.NodeWright),
		Limit: limit, StopLimit: grace, Slice: slice,
		Fields: map[string]string{
			"FETTLE_NODEWRIGHT": s.work.NodeWright, "FETTLE_PACKAGE": s.task.Name, "FETTLE_VERSION": s.task.Version,
			"FETTLE_STAGE": string(s.task.Stage), "FETTLE_ATTEMPT": fmt.Sprint(s.task.Attempt),
		},
		CPUQuota:  time.Duration(res.CPULimit) * time.Millisecond,
		CPUWeight: weight(res.CPURequest), MemoryMax: uint64(max(res.MemoryLimit, 0)), MemoryLow: uint64(max(res.MemoryRequest, 0)),
	}
	if err := s.Units.Launch(ctx, service); err != nil && !errors.Is(err, systemd.ErrExists) {
		return err
	}
	return nil
}

// weight turns a request of thousandths of a CPU into a share: a whole CPU is systemd's default, 100.
func weight(millis int64) uint64 {
	if millis <= 0 {
		return 0
	}
	return uint64(min(max(millis/10, 1), 10000))
}

// errNoVerdict says that a unit ended and left no verdict.
var errNoVerdict = errors.New("the unit has ended")

// await waits for the verdict of a unit. Where it has ended without one it tells what systemd knows of it.
func (s *run) await(ctx context.Context, unit, verdict string) (step.Verdict, systemd.Run, error) {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return step.Verdict{}, systemd.Run{}, err
	}
	defer func() { _ = watch.Close() }()
	if err := watch.Add(filepath.Dir(verdict)); err != nil {
		return step.Verdict{}, systemd.Run{}, err
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		v, err := step.ReadVerdict(verdict)
		if err == nil {
			return v, systemd.Run{}, nil
		}
		if !statefile.Missing(err) {
			return step.Verdict{}, systemd.Run{}, err
		}
		select {
		case <-ctx.Done():
			return step.Verdict{}, systemd.Run{}, ctx.Err()
		case <-watch.Events:
			continue
		case <-poll.C:
		}
		now, err := s.state(ctx, unit)
		if err != nil || !now.Ended() {
			continue // the bus may be away for a while; the step does not need it
		}
		if v, err := step.ReadVerdict(verdict); err == nil { // it came between the two looks
			return v, systemd.Run{}, nil
		}
		return step.Verdict{}, now, errNoVerdict
	}
}

func (s *run) state(ctx context.Context, unit string) (systemd.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return s.Units.Run(ctx, unit)
}

// stateAtLast waits until systemd can be asked. It fails when the context ends.
func (s *run) stateAtLast(ctx context.Context, unit string) (systemd.Run, error) {
	for {
		now, err := s.state(ctx, unit)
		if err == nil {
			return now, nil
		}
		s.Log.Warn("cannot ask systemd about a step; will ask again", "unit", unit, "error", err)
		select {
		case <-ctx.Done():
			return systemd.Run{}, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// judge makes a result of a verdict, and waits until nothing of the step is left.
func (s *run) judge(ctx context.Context, unit string, order step.Order, v step.Verdict) (stages.Result, Note) {
	s.settle(ctx, unit)
	if order.Log != "" {
		if err := s.files.reap(order.Log); err != nil {
			s.Log.Warn("cannot remove old logs", "log", order.Log, "error", err)
		}
	}
	n := Note{Reason: StepFailed, Tail: v.Tail, At: time.Now()}
	switch {
	case v.Succeeded:
		return stages.Succeeded, Note{}
	case v.Stopped && context.Cause(ctx) == errCalledOff: //nolint:errorlint // it is this very one
		n.Reason = CalledOff
		return stages.Stopped, n
	case v.Stopped && s.how.StageTimeout > 0 && s.Uptime()-s.attempt.Began >= s.how.StageTimeout:
		n.Reason, n.Message = DeadlineExceeded, fmt.Sprintf("the attempt took longer than %s", s.how.StageTimeout)
	case v.Stopped:
		n.Reason, n.Message = Interrupted, "somebody stopped it"
		return stages.Stopped, n
	case v.Fault != "":
		n.Message = v.Fault
	case v.Signal != "":
		n.Message = "ended by signal " + v.Signal
	default:
		n.Message = fmt.Sprintf("exit status %d", v.Exit)
	}
	return stages.Failed, n
}

// settle waits until systemd has ended what the step left behind, and has it forget the unit.
func (s *run) settle(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	for {
		now, err := s.Units.Run(ctx, unit)
		if err != nil || now.Ended() {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.forget(ctx, unit)
}

func (s *run) forget(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	if err := s.Units.Clear(ctx, unit); err != nil {
		s.Log.Debug("systemd does not forget a unit", "unit", unit, "error", err)
	}
}

// callOff stops a step that is not wanted any more. When this process is about to end the step goes on.
func (s *run) callOff(ctx context.Context, unit string) (stages.Result, Note) {
	if context.Cause(ctx) == errCalledOff { //nolint:errorlint // it is this very one
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.how.GracefulShutdown, defaultGrace)+callLimit)
		defer cancel()
		if err := s.Units.Stop(stop, unit); err != nil {
			s.Log.Error("cannot stop a step that is not wanted any more", "unit", unit, "error", err)
		}
		s.forget(ctx, unit)
	}
	return stages.Stopped, note(CalledOff, "")
}
