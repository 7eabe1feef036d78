package stages

import (
	"maps"
	"slices"
	"time"
)

// Follow folds what the plan asks for into the host: a version, a configuration, an uninstall or its cancellation, a stage
// to be run again; and gives stages that failed long ago another try. It starts nothing. What is in the host and not in the plan stays as it is: absence never undoes
// anything.
func Follow(plan Plan, host Host, now time.Time) Host {
	next := host.clone()
	for _, p := range plan.Packages {
		next.follow(p, plan.Limits, now)
	}
	next.keepInterruption(plan)
	for _, p := range plan.Packages {
		next.release(p)
	}
	return next
}

func (h *Host) follow(p Package, limits Limits, now time.Time) {
	if p.Uninstall {
		h.leave(p, limits, now)
		return
	}
	h.forget(p)
	r, there := h.Record(p.Name, p.Version)
	if !there {
		return
	}
	was := r
	switch {
	case r.Stage == UninstallInterrupt: // too late to keep it: it finishes, and is installed again
		h.reopen(r, p, limits, now)
		return
	case r.Stage == Uninstall:
		r = r.restart(Apply)
		r.InterruptPending = p.Interrupt != nil
	case p.Rerun.ID != "" && p.Rerun.ID != r.Rerun && r.reached(p.Rerun.Stage):
		r = r.restart(p.Rerun.Stage)
		r.Fresh = true
		if p.Rerun.Stage != PostInterrupt {
			r.InterruptPending = p.Interrupt != nil
		}
	}
	if changed := changedKeys(r.Config, p.Config); len(changed) > 0 && r.configured() {
		r = r.restart(Config)
		r.Changed, r.Config = union(r.Changed, changed), maps.Clone(p.Config)
	}
	r.Rerun = p.Rerun.ID
	if r.Epoch != was.Epoch || r.Rerun != was.Rerun {
		h.put(r)
	}
	if r.Epoch == was.Epoch {
		h.reopen(r, p, limits, now)
	}
}

// forget gives up the other versions of the package that the plan does not want any more: one that was never applied, or
// is half gone, leaves nothing that the new one could build on, and a stage that runs for one is called off.
func (h *Host) forget(p Package) {
	h.drop(p.Name, func(r Record) bool { return r.Version != p.Version && (!r.applied() || r.leaving()) })
	for _, r := range slices.Clone(h.Records) {
		if r.Name == p.Name && r.Version != p.Version && r.Running {
			h.put(r.restart(r.Stage))
		}
	}
}

// release lets a package go that waits at an interrupt which the plan does not have any more.
func (h *Host) release(p Package) {
	at := locate(p, *h)
	if !at.there || !at.record.interrupted() || len(at.owed) > 0 || at.record.State == Complete ||
		h.Interruption != nil && slices.Contains(h.Interruption.Members, p.Name) {
		return
	}
	if at.record.leaving() {
		h.drop(p.Name, func(r Record) bool { return r.Version == at.record.Version })
		return
	}
	r := at.record.restart(Config)
	r.State, r.InterruptPending, r.Fresh = Complete, false, false
	h.put(r)
}

// reopen gives a stage that was given up another try, when it was asked for or the time has come.
func (h *Host) reopen(r Record, p Package, limits Limits, now time.Time) {
	if r.State != Erroring || p.Reopen == r.Reopen && !limits.expired(r.LastFailure, now) {
		return
	}
	h.put(r.restart(r.Stage))
}

// leave sends every version of the package that is on the host into uninstalling.
func (h *Host) leave(p Package, limits Limits, now time.Time) {
	for _, r := range slices.Clone(h.Records) {
		switch {
		case r.Name != p.Name:
		case r.leaving():
			h.reopen(r, p, limits, now)
		default:
			r = r.restart(Uninstall)
			r.InterruptPending = p.Interrupt != nil
			h.put(r)
		}
	}
}

// keepInterruption lets go of an interrupt when what it was for has changed: one of its members does not wait for it any
// more. It has not completed then; who still owes one runs one anew.
func (h *Host) keepInterruption(plan Plan) {
	if h.Interruption == nil || !slices.ContainsFunc(h.Interruption.Members, func(name string) bool { return !h.waits(plan, name) }) {
		return
	}
	members := h.Interruption.Members
	h.Interruption = nil
	for _, r := range slices.Clone(h.Records) {
		if slices.Contains(members, r.Name) && r.interrupted() && (r.State == Skipped || r.Running) {
			h.put(r.restart(r.Stage))
		}
	}
}

// waits reports whether a package waits for the interrupt under way, as a member of it should.
func (h *Host) waits(plan Plan, name string) bool {
	p := plan.find(name)
	if p == nil {
		return false
	}
	want := Skipped
	if name == h.Interruption.Carrier {
		want = InProgress
		if h.Interruption.Failed {
			want = Erroring
		}
	}
	return slices.ContainsFunc(h.Records, func(r Record) bool {
		return r.Name == name && (r.Version == p.Version || r.leaving()) && r.interrupted() && r.State == want && r.Epoch == h.Interruption.Epochs[name]
	})
}

// interrupted : the version is at one of the stages that are interrupts.
func (r Record) interrupted() bool { return r.Stage == Interrupt || r.Stage == UninstallInterrupt }

func (p Plan) find(name string) *Package {
	for i := range p.Packages {
		if p.Packages[i].Name == name {
			return &p.Packages[i]
		}
	}
	return nil
}

// order of the stages of a package that stays.
var order = map[Stage]int{Apply: 0, Upgrade: 0, Config: 1, Interrupt: 2, PostInterrupt: 3}

// reached : the package has come to the stage once, so that running it again skips nothing. Whoever asks for a stage that
// is still to come gets it in its turn.
func (r Record) reached(stage Stage) bool {
	return order[stage] <= order[r.Stage] || r.Stage == Config && r.State == Complete
}

// configured : the configuration of before has been used, or is being used.
func (r Record) configured() bool {
	return r.Configured && (r.Stage == Config || r.Stage == Interrupt || r.Stage == PostInterrupt)
}

// restart sends the record to the beginning of a stage.
func (r Record) restart(stage Stage) Record {
	r.Stage, r.State, r.Running, r.Failures = stage, InProgress, false, 0
	r.Epoch++
	return r
}

// changedKeys are the keys that were added, removed or given another value, sorted.
func changedKeys(was, is map[string]string) []string {
	var changed []string
	for key, hash := range is {
		if had, ok := was[key]; !ok || had != hash {
			changed = append(changed, key)
		}
	}
	for key := range was {
		if _, ok := is[key]; !ok {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	return changed
}

func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
