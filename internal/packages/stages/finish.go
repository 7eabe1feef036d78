package stages

import (
	"maps"
	"slices"
	"time"
)

// Begin records that a task runs. It is to be durable before the task is started.
func Begin(plan Plan, host Host, task Task) Host {
	next := host.clone()
	p := plan.find(task.Name)
	if p == nil {
		return next
	}
	if task.isInterrupt() {
		next.beginInterrupt(plan, task)
		return next
	}
	r, there := next.Record(task.Name, task.Version)
	if !there {
		r = Record{Name: task.Name, Version: task.Version, InterruptPending: p.Interrupt != nil, Rerun: p.Rerun.ID}
	}
	if r.Stage != task.Stage {
		r.Failures = 0
	}
	r.Stage, r.State, r.Running, r.Reopen = task.Stage, InProgress, true, p.Reopen
	if task.Stage == Config {
		if r.Configured {
			r.Changed = union(r.Changed, changedKeys(r.Config, p.Config))
		}
		r.Config, r.Configured = maps.Clone(p.Config), true
	}
	next.put(r)
	return next
}

func (h *Host) beginInterrupt(plan Plan, task Task) {
	i := Interruption{Disruption: task.Disruption, Members: slices.Clone(task.Members), Carrier: task.Name, Epochs: map[string]int{}, Running: true}
	if h.Interruption != nil && h.Interruption.Carrier == task.Name { // another try
		i.Failures, i.LastFailure = h.Interruption.Failures, h.Interruption.LastFailure
	}
	for _, name := range task.Members {
		p := plan.find(name)
		if p == nil {
			continue
		}
		at := locate(*p, *h)
		r := at.record
		r.Stage, r.State = Interrupt, Skipped
		if at.record.leaving() {
			r.Stage = UninstallInterrupt
		}
		if r.Running = name == task.Name; r.Running {
			r.State, r.Reopen = InProgress, p.Reopen
		}
		i.Epochs[name] = r.Epoch
		h.put(r)
	}
	h.Interruption = &i
}

// Result is how a task ended.
type Result int

const (
	// Succeeded : the stage and its checks are done.
	Succeeded Result = iota
	// Failed : the attempt failed, and counts against the retries.
	Failed
	// Stopped : the task was called off, or did not get to its end by no fault of its own. It does not count.
	Stopped
	// GaveUp : the attempt failed, and no other is to follow, as for a reboot that does not happen.
	GaveUp
)

// Finish records how a task ended. A task that was called off meanwhile changes nothing.
func Finish(plan Plan, host Host, task Task, result Result, now time.Time) Host {
	next := host.clone()
	p := plan.find(task.Name)
	if p == nil {
		p = &Package{Name: task.Name, Version: task.Version}
	}
	if task.isInterrupt() {
		next.finishInterrupt(plan, task, result, now)
		return next
	}
	r, there := next.Record(task.Name, task.Version)
	if !there || !r.Running || r.Epoch != task.Epoch || r.Stage != task.Stage {
		return next
	}
	r.Running = false
	switch result {
	case Succeeded:
		next.complete(*p, r)
		return next
	case Stopped:
	case Failed, GaveUp:
		r.Failures, r.LastFailure = r.Failures+1, now
		if result == GaveUp || plan.Limits.exhausted(r.Failures) {
			r.State = Erroring
		}
	}
	next.put(r)
	return next
}

// complete records the success of a stage.
func (h *Host) complete(p Package, r Record) {
	r.State, r.Failures = Complete, 0
	switch r.Stage {
	case Upgrade:
		h.drop(r.Name, func(old Record) bool { return compareVersions(old.Version, r.Version) < 0 })
	case Config:
		if at := (position{Package: p, record: r}); len(at.owes()) == 0 {
			r.Changed, r.Fresh, r.InterruptPending = nil, false, false
		}
	case PostInterrupt:
		r.Fresh = false
	case Uninstall:
		if p.Interrupt == nil || !r.InterruptPending {
			h.drop(r.Name, func(old Record) bool { return old.Version == r.Version })
			return
		}
		r.Stage, r.State = UninstallInterrupt, InProgress
	}
	h.put(r)
}

func (h *Host) finishInterrupt(plan Plan, task Task, result Result, now time.Time) {
	i := h.Interruption
	if i == nil || i.Carrier != task.Name || !i.Running || i.Epochs[task.Name] != task.Epoch {
		return
	}
	i.Running = false
	switch result {
	case Succeeded:
		h.Interruption = nil
	case Failed, GaveUp:
		i.Failures, i.LastFailure = i.Failures+1, now
		i.Failed = result == GaveUp || plan.Limits.exhausted(i.Failures)
	case Stopped:
	}
	for _, r := range slices.Clone(h.Records) {
		if !slices.Contains(i.Members, r.Name) || !r.interrupted() || r.State == Complete || r.Epoch != i.Epochs[r.Name] {
			continue
		}
		r.Running = false
		switch {
		case result == Succeeded && r.Stage == UninstallInterrupt:
			h.drop(r.Name, func(old Record) bool { return old.Version == r.Version })
			continue
		case result == Succeeded:
			r.State, r.InterruptPending, r.Changed, r.Failures = Complete, false, nil, 0
		case r.Name == i.Carrier:
			r.Failures, r.LastFailure = i.Failures, i.LastFailure
			if i.Failed {
				r.State = Erroring
			}
		}
		h.put(r)
	}
}
