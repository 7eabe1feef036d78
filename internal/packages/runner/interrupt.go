package runner

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/fettle-dev/fettle/internal/interrupts"
	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/packages/step"
)

// Reasons of Notes about interrupts.
const (
	CommandFailed     = "InterruptFailed"
	RebootDidNotCome  = "RebootDidNotHappen"
	Rebooted          = "Rebooted"
	servicesRestarted = "ServicesRestarted"
)

// rebootPoll is how often is looked whether the host goes down.
const rebootPoll = time.Second

// interrupt carries out an interrupt for all of its members.
func (r *Runner) interrupt(ctx context.Context, w Work, task stages.Task) (stages.Result, Note) {
	switch task.Disruption.Type {
	case stages.Reboot:
		return r.reboot(ctx, w, task)
	case stages.Noop:
		flag := path.Join(r.folders(w).InterruptFlags(w.resource(task)), "no_op.complete")
		if err := r.files.write(flag, stamped()); err != nil {
			return stages.Failed, note(HostUnwritable, "%v", err)
		}
		return stages.Succeeded, note(Completed, "")
	}
	return r.restart(ctx, w, task)
}

// stamped is the content of a flag of an interrupt: the time, in seconds.
func stamped() []byte {
	return strconv.AppendFloat(nil, float64(time.Now().UnixMicro())/1e6, 'f', -1, 64)
}

// restart runs the commands of an interrupt that restarts services, each once.
func (r *Runner) restart(ctx context.Context, w Work, task stages.Task) (stages.Result, Note) {
	s := &run{Runner: r, work: w, task: task, how: w.Packages[task.Name]}
	var err error
	if s.attempt, err = s.begin(); err != nil {
		return stages.Stopped, note(HostUnwritable, "%v", err)
	}
	commands := interrupts.Commands(string(task.Disruption.Type), task.Disruption.Services)
	for i := s.attempt.Step; i < len(commands); i++ {
		if result, n := s.command(ctx, commands[i]); result != stages.Succeeded {
			return result, n
		}
		a := s.attempt
		a.Step = i + 1
		if err := s.remember(a); err != nil {
			return stages.Stopped, note(HostUnwritable, "%v", err)
		}
	}
	return stages.Succeeded, note(servicesRestarted, "")
}

func (s *run) command(ctx context.Context, c interrupts.Command) (stages.Result, Note) {
	resource := s.work.resource(s.task)
	unit := s.unit(format.Mode(s.task.Stage))
	order := step.Order{
		ID: unit, Argv: append([]string{"/usr/bin/env"}, c.Argv...), Env: base, Dir: "/", ReturnCodes: []int{0}, Output: outputLimit,
		Log: s.folders(s.work).InterruptLog(resource, c.Name, time.Now()), Verdict: s.stepFile(unit, "verdict"),
	}
	result, n := s.supervise(ctx, unit, order)
	if result == stages.Failed {
		n.Reason, n.Message = CommandFailed, fmt.Sprintf("%q: %s", c.Argv, n.Message)
		return result, n
	}
	if result != stages.Succeeded {
		return result, n
	}
	if why, err := s.standing(ctx, c); err != nil || why != "" {
		return stages.Failed, note(CommandFailed, "%q: %s", c.Argv, errors.Join(err, text(why)))
	}
	flag := path.Join(s.folders(s.work).InterruptFlags(resource), c.Name+".complete")
	if err := s.files.write(flag, stamped()); err != nil {
		return stages.Failed, note(HostUnwritable, "%v", err)
	}
	return stages.Succeeded, Note{}
}

// text makes an error of words, none of "".
func text(words string) error {
	if words == "" {
		return nil
	}
	return errors.New(words)
}

// standing says why a service that was restarted does not stand; "" when it does. Many come up for a moment only.
func (s *run) standing(ctx context.Context, c interrupts.Command) (why string, err error) {
	if c.Service == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	now, err := s.Units.Run(ctx, unitName(c.Service))
	switch {
	case err != nil:
		return "", err
	case now.Active == "active", now.Active == "reloading", now.Active == "inactive" && now.Result == "success": // one that does its work and ends
		return "", nil
	}
	return fmt.Sprintf("the service is %s after its restart, by reason of %s", now.Active, now.Result), nil
}

// unitName is the full name of a unit that may be given without its suffix, as systemctl takes it.
func unitName(service string) string {
	if path.Ext(service) == "" {
		return service + ".service"
	}
	return service
}

// reboot reboots the host, or finds that it has rebooted.
func (r *Runner) reboot(ctx context.Context, w Work, task stages.Task) (stages.Result, Note) {
	want := interrupts.Request{ID: fmt.Sprintf("%s/%s/%d/%d", w.Admission, task.Name, task.Epoch, task.Attempt), Limit: w.Packages[task.Name].StageTimeout}
	for {
		down, err := r.Units.ShuttingDown(ctx)
		if err != nil {
			r.Log.Warn("cannot tell whether the host goes down", "error", err)
		}
		record, act := interrupts.Next(r.memory.get(w.NodeWright).Reboot, want, interrupts.Host{BootID: r.Boot, Uptime: r.Uptime(), ShuttingDown: down})
		if err := r.storeReboot(w.NodeWright, record); err != nil {
			return stages.Stopped, note(HostUnwritable, "%v", err)
		}
		switch act {
		case interrupts.Intend:
			continue
		case interrupts.Ask:
			r.Log.Info("reboots the host", "nodewright", w.NodeWright, "request", want.ID, "members", task.Members)
			if err := r.Units.Reboot(ctx); err != nil {
				r.Log.Error("the host refuses to reboot; it is asked again", "error", err)
				record.Error = err.Error()
				if err := r.storeReboot(w.NodeWright, record); err != nil {
					return stages.Stopped, note(HostUnwritable, "%v", err)
				}
			}
		case interrupts.Report:
			if record.Phase == interrupts.Done {
				return stages.Succeeded, note(Rebooted, "boot %s followed boot %s", r.Boot, record.BootID)
			}
			return stages.GaveUp, note(RebootDidNotCome, "the host was asked %d times: %s", record.Asks, record.Error)
		case interrupts.Await:
		}
		select {
		case <-ctx.Done(): // a reboot that was asked for cannot be recalled
			return stages.Stopped, note(CalledOff, "")
		case <-time.After(rebootPoll):
		}
	}
}

func (r *Runner) storeReboot(nodeWright string, record interrupts.Reboot) error {
	if r.memory.get(nodeWright).Reboot == record {
		return nil
	}
	return r.memory.change(nodeWright, func(k kept) kept {
		k.Reboot = record
		return k
	})
}
