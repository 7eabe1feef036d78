package runner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/image"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/systemd"
)

// Units runs services on the host. It is *systemd.Bus.
type Units interface {
	Launch(ctx context.Context, s systemd.Service) error
	Run(ctx context.Context, name string) (systemd.Run, error)
	Stop(ctx context.Context, name string) error
	Clear(ctx context.Context, name string) error
	Reboot(ctx context.Context) error
	ShuttingDown(ctx context.Context) (bool, error)
}

// Options of a Runner.
type Options struct {
	Host  *hostfs.Root
	Units Units
	// State is the folder of what is remembered, of orders and of verdicts. It is at the same path on the host.
	State string
	// Step is fettle-step on the host.
	Step string
	// Root and Logs are the folders on the host that packages are laid out and log in, e.g. format.DefaultRoot.
	Root, Logs string
	Registry   image.Registry
	Images     *image.Store
	// Boot is the ID of this boot, and Uptime gives the time since it began.
	Boot   string
	Uptime func() time.Duration
	// Changed is told whenever something is to be reported anew. It must not block.
	Changed func(nodeWright string)
	Log     *slog.Logger
}

// Runner carries out the work of NodeWrights.
type Runner struct {
	Options
	memory *memory
	files  hostFiles
	wake   chan struct{}

	mu sync.Mutex
	// works are what is to be done, by NodeWright. Guarded by mu.
	works map[string]Work
	// running are the tasks that goroutines carry out. Guarded by mu.
	running map[taskID]context.CancelCauseFunc
	done    sync.WaitGroup
}

// taskID names a task among all.
type taskID struct {
	nodeWright, name, version string
	stage                     stages.Stage
	epoch                     int
}

func idOf(nodeWright string, t stages.Task) taskID {
	return taskID{nodeWright, t.Name, t.Version, t.Stage, t.Epoch}
}

// errCalledOff is why a task's context ends when it is not wanted any more.
var errCalledOff = errors.New("called off")

// New returns a runner that remembers what one before it did. An error says that this is lost.
func New(o Options) (*Runner, error) {
	m, err := open(o.State)
	if err != nil {
		return nil, err
	}
	if err := m.sweep(filepath.Join(o.State, stepsFolder)); err != nil {
		o.Log.Warn("cannot remove what attempts left behind that are over", "error", err)
	}
	return &Runner{Options: o, memory: m, files: hostFiles{o.Host}, wake: make(chan struct{}, 1),
		works: map[string]Work{}, running: map[taskID]context.CancelCauseFunc{}}, nil
}

// Want sets what a NodeWright wants, in place of what it wanted before.
func (r *Runner) Want(w Work) {
	r.mu.Lock()
	r.works[w.NodeWright] = w
	r.mu.Unlock()
	r.poke()
}

// Progress is what became of a NodeWright's packages so far.
type Progress struct {
	Host     stages.Host
	Waits    []stages.Wait
	Notes    map[string]Note
	Complete bool
}

// Progress of a NodeWright.
func (r *Runner) Progress(nodeWright string) Progress {
	w, k := r.work(nodeWright), r.memory.get(nodeWright)
	host := stages.Follow(w.Plan, k.Host, time.Now())
	return Progress{Host: host, Waits: stages.Next(w.Plan, host, time.Now()).Waits, Notes: maps.Clone(k.Notes), Complete: stages.IsComplete(w.Plan, host)}
}

func (r *Runner) work(nodeWright string) Work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.works[nodeWright]
}

func (r *Runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // a pass is due anyway
	}
}

// idle is the longest time between two passes.
const idle = time.Minute

// Start carries out work until the context ends. Steps that run then go on; the next runner waits for them.
func (r *Runner) Start(ctx context.Context) error {
	defer r.done.Wait()
	for {
		next, err := r.pass(ctx)
		if err != nil {
			return err
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pass starts what may start and calls off what is not wanted any more.
func (r *Runner) pass(ctx context.Context) (again time.Duration, err error) {
	r.mu.Lock()
	works := maps.Clone(r.works)
	r.mu.Unlock()
	again = idle
	wanted := map[taskID]bool{}
	for _, w := range works {
		now := time.Now()
		if err := r.follow(w, now); err != nil {
			return 0, err
		}
		choice := stages.Next(w.Plan, r.memory.get(w.NodeWright).Host, now)
		for _, task := range choice.Tasks {
			id := idOf(w.NodeWright, task)
			wanted[id] = true
			if err := r.ensure(ctx, w, task, id); err != nil {
				return 0, err
			}
		}
		if wake := choice.Wake(); !wake.IsZero() {
			again = min(again, max(wake.Sub(now), 0))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, cancel := range r.running {
		if !wanted[id] {
			cancel(errCalledOff)
		}
	}
	return again, nil
}

// follow stores what the plan changes.
func (r *Runner) follow(w Work, now time.Time) error {
	k := r.memory.get(w.NodeWright)
	host := stages.Follow(w.Plan, k.Host, now)
	if k.UID == w.UID && reflect.DeepEqual(host, k.Host) {
		return nil
	}
	return r.memory.change(w.NodeWright, func(k kept) kept {
		if k.UID != w.UID { // another object of the name: nothing that was done is its doing
			k = kept{UID: w.UID, Attempts: map[string]attempt{}, Notes: map[string]Note{}}
			host = stages.Follow(w.Plan, k.Host, now)
		}
		k.Host = host
		return k
	})
}

// ensure has a goroutine carry a task out.
func (r *Runner) ensure(ctx context.Context, w Work, task stages.Task, id taskID) error {
	r.mu.Lock()
	_, runs := r.running[id]
	r.mu.Unlock()
	if runs {
		return nil
	}
	err := r.memory.change(w.NodeWright, func(k kept) kept {
		k.Host = stages.Begin(w.Plan, k.Host, task)
		return k
	})
	if err != nil {
		return err
	}
	own, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.running[id] = cancel
	r.mu.Unlock()
	r.done.Go(func() {
		result, note := r.carryOut(own, w, task)
		cancel(nil)
		r.finish(ctx, w, task, id, result, note)
	})
	return nil
}

// finish records how a task ended. When this process is about to end nothing is: the task goes on.
func (r *Runner) finish(ctx context.Context, w Work, task stages.Task, id taskID, result stages.Result, note Note) {
	if ctx.Err() == nil {
		err := r.memory.change(w.NodeWright, func(k kept) kept {
			k.Host = stages.Finish(r.work(w.NodeWright).Plan, k.Host, task, result, time.Now())
			delete(k.Attempts, task.Name)
			k.Notes[task.Name] = note
			return k
		})
		if err != nil {
			r.Log.Error("cannot record how a stage ended; it is carried out again", "nodewright", w.NodeWright, "task", task.String(), "error", err)
		}
	}
	if err := r.memory.sweep(filepath.Join(r.State, stepsFolder)); err != nil {
		r.Log.Warn("cannot remove what an attempt left behind", "task", task.String(), "error", err)
	}
	r.mu.Lock()
	delete(r.running, id)
	r.mu.Unlock()
	if r.Changed != nil {
		r.Changed(w.NodeWright)
	}
	r.poke()
}

// carryOut runs a stage, or an interrupt.
func (r *Runner) carryOut(ctx context.Context, w Work, task stages.Task) (stages.Result, Note) {
	if task.Members != nil {
		return r.interrupt(ctx, w, task)
	}
	return r.stage(ctx, w, task)
}

func (r *Runner) folders(w Work) format.Folders {
	return format.Folders{Root: r.Root, Logs: r.Logs, NodeWright: w.NodeWright}
}

// stepsFolder has orders and verdicts.
const stepsFolder = "steps"

func (r *Runner) stepFile(unit, kind string) string {
	return filepath.Join(r.State, stepsFolder, unit+"."+kind)
}
