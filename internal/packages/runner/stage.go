package runner

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/image"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/packages/step"
)

// Reasons of Notes beside those of images.
const (
	Completed        = "StageCompleted"
	StepFailed       = "StepFailed"
	CheckFailed      = "CheckFailed"
	DeadlineExceeded = "DeadlineExceeded"
	PackageInvalid   = "PackageInvalid"
	HostUnwritable   = "HostUnwritable"
	Interrupted      = "Interrupted"
	CalledOff        = "CalledOff"
)

const (
	// firstPull and lastPull are the pauses between tries to bring an image, which double. A registry that is away is no
	// failure of the package.
	firstPull = 5 * time.Second
	lastPull  = 5 * time.Minute
)

// run is what one attempt at a stage works with.
type run struct {
	*Runner
	work     Work
	task     stages.Task
	how      Package
	config   *format.Package
	unpacked *image.Unpacked
	attempt  attempt
}

func note(reason, message string, args ...any) Note {
	return Note{Reason: reason, Message: fmt.Sprintf(message, args...), At: time.Now()}
}

func (r *Runner) stage(ctx context.Context, w Work, task stages.Task) (stages.Result, Note) {
	s := &run{Runner: r, work: w, task: task, how: w.Packages[task.Name]}
	var err error
	if s.unpacked, err = s.bring(ctx); err != nil {
		return stages.Stopped, note(CalledOff, "%v", err)
	}
	if s.attempt, err = s.begin(); err != nil {
		return stages.Stopped, note(HostUnwritable, "%v", err)
	}
	if result, n := s.prepare(); n.Reason != "" {
		return result, n
	}
	if result, n := s.populate(ctx); result != stages.Succeeded {
		return result, n
	}
	for _, mode := range modes(task.Stage) {
		if s.attempt.Mode != "" && s.attempt.Mode != mode && s.attempt.Mode.IsCheck() {
			continue // an attempt that is gone on with has this mode behind it
		}
		if result, n := s.mode(ctx, mode); result != stages.Succeeded {
			return result, n
		}
	}
	return stages.Succeeded, note(Completed, "")
}

// bring has the image of the package in the store. It tries until it is, or until the task is called off.
func (s *run) bring(ctx context.Context) (*image.Unpacked, error) {
	for pause := firstPull; ; pause = min(2*pause, lastPull) {
		there, err := s.pull(ctx)
		if err == nil {
			return there, nil
		}
		var f *image.Failure
		if errors.As(err, &f) {
			s.tell(Note{Reason: f.Reason, Message: f.Error(), At: time.Now()})
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func (s *run) pull(ctx context.Context) (*image.Unpacked, error) {
	ref := s.how.Image
	ref.Version = s.task.Version
	if ref.Digest != "" {
		if there, ok := s.Images.Get(ref.Digest); ok {
			return there, nil
		}
	}
	var found *image.Image
	var err error
	if s.how.File != "" {
		found, err = image.FromFile(s.Host.Path(s.how.File), ref)
	} else {
		found, err = s.Registry.Find(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	return s.Images.Unpack(ctx, found)
}

// tell makes something known that does not end the attempt.
func (s *run) tell(n Note) {
	err := s.memory.change(s.work.NodeWright, func(k kept) kept {
		k.Notes[s.task.Name] = n
		return k
	})
	if err != nil {
		s.Log.Error("cannot record what holds a package up", "package", s.task.Name, "reason", n.Reason, "error", err)
	}
	if s.Changed != nil {
		s.Changed(s.work.NodeWright)
	}
}

// begin finds the attempt that an earlier process began in this boot, or records a new one.
func (s *run) begin() (attempt, error) {
	was, there := s.memory.get(s.work.NodeWright).Attempts[s.task.Name]
	if there && was.Boot == s.Boot && was.Task.Stage == s.task.Stage && was.Task.Epoch == s.task.Epoch && was.Task.Attempt == s.task.Attempt && was.Task.Version == s.task.Version {
		return was, nil
	}
	a := attempt{Task: s.task, Boot: s.Boot, Began: s.Uptime()}
	return a, s.remember(a)
}

func (s *run) remember(a attempt) error {
	s.attempt = a
	return s.memory.change(s.work.NodeWright, func(k kept) kept {
		k.Attempts[s.task.Name] = a
		return k
	})
}

// prepare reads the package and lays it out.
func (s *run) prepare() (stages.Result, Note) {
	resource := s.work.resource(s.task)
	if err := resource.Valid(); err != nil {
		return stages.GaveUp, note(PackageInvalid, "%v", err)
	}
	folder := s.folders(s.work).Copy(resource)
	if err := s.files.lay(folder, s.unpacked.Root, s.unpacked.Digest, s.work, s.how); err != nil {
		return stages.Failed, note(HostUnwritable, "%v", err)
	}
	content, err := s.files.read(path.Join(folder, format.ConfigFile))
	if err != nil {
		return stages.Failed, note(PackageInvalid, "%v", err)
	}
	if s.config, err = format.Parse(path.Join(format.ImageFolder, format.ConfigFile), content); err != nil {
		return stages.Failed, note(PackageInvalid, "%v", err)
	}
	exists := func(p string) bool { return s.files.exists(path.Join(folder, p)) }
	if faults, _ := s.config.Compare(exists); len(faults) > 0 {
		return stages.Failed, note(PackageInvalid, "%s", faults[0])
	}
	missing := s.config.MissingConfig(format.Mode(s.task.Stage), func(key string) bool { return exists(path.Join(format.ConfigMapFolder, key)) })
	if len(missing) > 0 {
		return stages.Failed, note(PackageInvalid, "the package expects files that its configMap does not have: %q", missing)
	}
	if err := s.files.write(path.Join(s.folders(s.work).Flags(), format.StartFlag), nil); err != nil {
		return stages.Failed, note(HostUnwritable, "%v", err)
	}
	return stages.Succeeded, Note{}
}

// populate copies what the package brings for the host's root there, at the beginning of an attempt. It is done on the host:
// this process may not be able to write everywhere.
func (s *run) populate(ctx context.Context) (stages.Result, Note) {
	from := path.Join(s.folders(s.work).Copy(s.work.resource(s.task)), format.RootFolder)
	if s.attempt.Mode != "" || s.task.Stage == stages.Uninstall || !s.files.exists(from) {
		return stages.Succeeded, Note{}
	}
	unit := s.unit(format.RootFolder)
	result, n := s.supervise(ctx, unit, step.Order{
		ID: unit, Argv: []string{"/usr/bin/env", "cp", "-rLT", "--preserve=mode,timestamps", from, "/"}, Env: base, Dir: "/",
		ReturnCodes: []int{0}, Output: outputLimit, Verdict: s.stepFile(unit, "verdict"),
	})
	if result == stages.Failed {
		n.Message = fmt.Sprintf("copy %s over the root of the host: %s", format.RootFolder, n.Message)
	}
	return result, n
}

// mode runs the steps of a mode. One that changes the host ends with the first that fails; a check runs them all.
func (s *run) mode(ctx context.Context, mode format.Mode) (stages.Result, Note) {
	if s.attempt.Mode != mode {
		a := s.attempt
		a.Mode, a.Step, a.Failed = mode, 0, nil
		if err := s.remember(a); err != nil {
			return stages.Stopped, note(HostUnwritable, "%v", err)
		}
	}
	steps := s.config.Steps[mode]
	var worst Note
	for i := s.attempt.Step; i < len(steps); i++ {
		result, n := s.step(ctx, mode, steps[i])
		if result == stages.Stopped || result == stages.Failed && !mode.IsCheck() {
			return result, n
		}
		a := s.attempt
		a.Step, a.Failed = i+1, append(a.Failed, result == stages.Failed)
		if err := s.remember(a); err != nil {
			return stages.Stopped, note(HostUnwritable, "%v", err)
		}
		if result == stages.Failed && worst.Reason == "" {
			worst = n
			worst.Reason = CheckFailed
		}
	}
	if err := s.after(mode, steps); err != nil {
		return stages.Failed, note(HostUnwritable, "%v", err)
	}
	if worst.Reason != "" || anyOf(s.attempt.Failed) && mode.IsCheck() {
		return stages.Failed, worst
	}
	return stages.Succeeded, Note{}
}

func anyOf(failed []bool) bool {
	for _, f := range failed {
		if f {
			return true
		}
	}
	return false
}

// after writes down what a mode came to, as packages and other agents know it.
func (s *run) after(mode format.Mode, steps []format.Step) error {
	flags := s.folders(s.work).Flags()
	failed := anyOf(s.attempt.Failed)
	if mode.IsCheck() && len(steps) > 0 {
		if err := s.files.write(path.Join(flags, format.CheckResultsFlag), format.CheckResults(steps, s.attempt.Failed)); err != nil {
			return err
		}
		if !failed {
			if err := s.files.write(path.Join(flags, format.AllCheckedFlag(mode)), nil); err != nil {
				return err
			}
		}
	}
	if failed {
		return nil
	}
	switch mode {
	case format.Apply.Check(), format.Upgrade.Check():
		return s.record(s.config.Version)
	case format.Uninstall.Check():
		for _, of := range s.config.Steps {
			for _, step := range of {
				if err := s.files.remove(path.Join(flags, s.config.Flag(step))); err != nil {
					return err
				}
			}
		}
		return s.record(format.Uninstalled)
	}
	return nil
}

// record puts a version on top of the package's history.
func (s *run) record(version string) error {
	return s.files.write(s.historyPath(), s.history().Record(version, time.Now()).Encode())
}

func (s *run) historyPath() string {
	return path.Join(s.folders(s.work).History(), s.config.HistoryFile())
}

// history is empty where there is none. One that cannot be read is kept beside.
func (s *run) history() format.History {
	content, err := s.files.read(s.historyPath())
	if err != nil {
		return format.History{}
	}
	h, err := format.ReadHistory(content)
	if err != nil {
		s.Log.Warn("a history that cannot be read is put aside", "file", s.historyPath(), "error", err)
		if err := s.files.write(s.historyPath()+".backup", content); err != nil {
			s.Log.Error("cannot put a history aside", "file", s.historyPath(), "error", err)
		}
	}
	return h
}
