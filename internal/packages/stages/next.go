package stages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Task is something to run: a stage of a package, or an interrupt.
type Task struct {
	// Name and Version of the package; of an interrupt, the one that carries it.
	Name, Version string
	Stage         Stage
	// Epoch tells a task from one of the same stage that was called off.
	Epoch int
	// Attempt counts from 1.
	Attempt int
	// Previous is the version that an upgrade comes from.
	Previous string
	// Fresh : flags that say that steps ran before do not count.
	Fresh bool
	// Disruption is what an interrupt does, and Members are the packages it serves.
	Disruption Disruption
	Members    []string
}

func (t Task) isInterrupt() bool { return t.Stage == Interrupt || t.Stage == UninstallInterrupt }

func (t Task) String() string { return fmt.Sprintf("%s %s %s", t.Stage, t.Name, t.Version) }

// Reason is why a package does not go on.
type Reason string

// Reasons.
const (
	// Held : the plan lets nothing new start.
	Held Reason = "Held"
	// NotAdmitted : the host's turn has not come.
	NotAdmitted Reason = "NotAdmitted"
	// NotDrained : the package will interrupt the host, and pods are still on it.
	NotDrained Reason = "NotDrained"
	// DependencyIncomplete : a package it depends on is not complete.
	DependencyIncomplete Reason = "DependencyIncomplete"
	// DependencyUninstalled : a package it depends on is to be uninstalled.
	DependencyUninstalled Reason = "DependencyUninstalled"
	// DependentInstalled : a package that depends on it has to be uninstalled first.
	DependentInstalled Reason = "DependentInstalled"
	// Serially : another package is running, and the plan runs one at a time.
	Serially Reason = "Serial"
	// InterruptDue : an interrupt comes first.
	InterruptDue Reason = "InterruptDue"
	// AwaitingInterrupt : the package is at its interrupt, which waits for other packages to reach theirs.
	AwaitingInterrupt Reason = "AwaitingInterrupt"
	// BackingOff : the stage failed and is tried again later.
	BackingOff Reason = "BackingOff"
	// GivenUp : the stage failed too often.
	GivenUp Reason = "GivenUp"
)

// Wait is a package that does not go on.
type Wait struct {
	Name   string
	Reason Reason
	// On names what is waited for, where that is a package.
	On string
	// Until is when it goes on by itself; zero when that is not known.
	Until time.Time
}

// Choice is what may happen on a host now.
type Choice struct {
	// Tasks to run, those among them that began and were not finished. A task that runs and is not here is to be stopped.
	Tasks []Task
	Waits []Wait
}

// Wake is when to choose again though nothing happened; zero for never.
func (c Choice) Wake() time.Time {
	var first time.Time
	for _, w := range c.Waits {
		if !w.Until.IsZero() && (first.IsZero() || w.Until.Before(first)) {
			first = w.Until
		}
	}
	return first
}

// position is where a package of the plan stands.
type position struct {
	Package
	record Record
	// there : the record is on the host.
	there bool
	// stage is the next to run, "" when there is none.
	stage    Stage
	previous string
	owed     []Disruption
}

// Next chooses from a plan and a host that has followed it.
func Next(plan Plan, host Host, now time.Time) Choice {
	c := &chooser{plan: plan, host: host, now: now}
	for _, p := range plan.Packages {
		c.all = append(c.all, locate(p, host))
	}
	slices.SortFunc(c.all, func(a, b position) int { return cmp.Compare(a.Name, b.Name) })
	c.choose()
	return Choice{Tasks: c.tasks, Waits: c.waits}
}

// IsComplete reports whether everything that the plan wants is done.
func IsComplete(plan Plan, host Host) bool {
	return !slices.ContainsFunc(plan.Packages, func(p Package) bool { return !locate(p, host).done() })
}

// locate finds where a package stands and what it would do next.
func locate(p Package, host Host) position {
	at := position{Package: p}
	if leaving := host.newest(p.Name, Record.leaving); p.Uninstall || leaving != nil && leaving.Version == p.Version {
		if leaving == nil {
			return at
		}
		at.record, at.there, at.stage = *leaving, true, leaving.Stage
		if p.Interrupt != nil && leaving.InterruptPending {
			at.owed = []Disruption{*p.Interrupt}
		}
		return at
	}
	at.record, at.there = host.Record(p.Name, p.Version)
	if !at.there {
		at.stage, at.record = Apply, Record{Name: p.Name, Version: p.Version, State: InProgress, InterruptPending: p.Interrupt != nil}
		older := host.newest(p.Name, func(r Record) bool { return compareVersions(r.Version, p.Version) < 0 && !r.leaving() })
		if older != nil {
			at.stage, at.previous = Upgrade, older.Version
		}
		at.owed = at.owes()
		return at
	}
	at.owed = at.owes()
	at.stage = at.record.Stage
	if at.record.State == Complete {
		at.stage = at.after()
	}
	if at.stage == Upgrade {
		if older := host.newest(p.Name, func(r Record) bool { return compareVersions(r.Version, p.Version) < 0 }); older != nil {
			at.previous = older.Version
		}
	}
	return at
}

// after is the stage after one that is complete.
func (at position) after() Stage {
	switch at.record.Stage {
	case Apply, Upgrade:
		return Config
	case Config:
		if len(at.owed) > 0 {
			return Interrupt
		}
	case Interrupt:
		return PostInterrupt
	}
	return ""
}

// owes are the interrupts that the package still has to run.
func (at position) owes() []Disruption {
	var owed []Disruption
	if at.record.InterruptPending && at.Interrupt != nil {
		owed = append(owed, *at.Interrupt)
	}
	return append(owed, at.forKeys(at.record.Changed)...)
}

// done : the package is as the plan wants it.
func (at position) done() bool { return at.stage == "" }

func (at position) failed() bool { return at.there && at.record.State == Erroring }

// atInterrupt : everything before the interrupt is done.
func (at position) atInterrupt() bool { return at.stage == Interrupt || at.stage == UninstallInterrupt }

// newest is the record of a package with the highest version that matches, or nil.
func (h Host) newest(name string, match func(Record) bool) *Record {
	var found *Record
	for i, r := range h.Records {
		if r.Name == name && match(r) && (found == nil || compareVersions(r.Version, found.Version) > 0) {
			found = &h.Records[i]
		}
	}
	return found
}

// chooser goes through the packages in the order of their names.
type chooser struct {
	plan  Plan
	host  Host
	now   time.Time
	all   []position
	tasks []Task
	waits []Wait
}

func (c *chooser) choose() {
	c.goOn()
	interruption := c.host.Interruption
	ready, owing := c.runnable()
	switch {
	case interruption != nil && interruption.Running:
		c.waitAll(ready, InterruptDue)
		c.waitAll(owing, InterruptDue)
	case interruption != nil && !interruption.Failed:
		c.waitAll(ready, InterruptDue)
		c.again(*interruption)
	case len(owing) > 0 && !slices.ContainsFunc(owing, func(at position) bool { return !at.atInterrupt() }):
		c.waitAll(ready, InterruptDue)
		c.interrupt(owing)
	default:
		c.start(append(ready, owing...))
	}
}

// goOn names the tasks again that began and were not finished.
func (c *chooser) goOn() {
	for _, at := range c.all {
		if at.there && at.record.Running && !at.record.interrupted() {
			c.tasks = append(c.tasks, c.task(at))
		}
	}
	if i := c.host.Interruption; i != nil && i.Running {
		c.tasks = append(c.tasks, c.interruptTask(*i))
	}
}

// runnable gives the packages that have something to do and wait for no other package: those that owe an interrupt apart.
// What is given up, and what runs, is in neither.
func (c *chooser) runnable() (ready, owing []position) {
	for _, at := range c.all {
		switch on, reason := c.blockedBy(at); {
		case at.done(), at.there && at.record.Running && !at.record.interrupted() && len(at.owed) == 0:
		case c.failedWith(at):
			c.wait(Wait{Name: at.Name, Reason: GivenUp, On: c.host.Interruption.Carrier})
		case at.failed():
			c.wait(Wait{Name: at.Name, Reason: GivenUp, Until: c.plan.Limits.until(at.record.LastFailure)})
		case reason != "":
			c.wait(Wait{Name: at.Name, Reason: reason, On: on})
		case len(at.owed) > 0:
			owing = append(owing, at)
		default:
			ready = append(ready, at)
		}
	}
	return ready, owing
}

// failedWith : the package waits for the interrupt of another, which was given up.
func (c *chooser) failedWith(at position) bool {
	i := c.host.Interruption
	return i != nil && i.Failed && at.Name != i.Carrier && slices.Contains(i.Members, at.Name)
}

// blockedBy names the package that has to come first, if there is one.
func (c *chooser) blockedBy(at position) (on string, reason Reason) {
	if at.record.leaving() {
		for _, other := range c.all {
			if _, depends := other.DependsOn[at.Name]; depends && other.there && other.record.leaving() {
				return other.Name, DependentInstalled
			}
		}
		return "", ""
	}
	for _, name := range sortedKeys(at.DependsOn) {
		i := slices.IndexFunc(c.all, func(o position) bool { return o.Name == name })
		switch {
		case i >= 0 && c.all[i].Uninstall:
			return name, DependencyUninstalled
		case i < 0, c.all[i].Version != at.DependsOn[name], !c.all[i].done():
			return name, DependencyIncomplete
		}
	}
	return "", ""
}

// start starts what may start.
func (c *chooser) start(from []position) {
	slices.SortFunc(from, func(a, b position) int { return cmp.Compare(a.Name, b.Name) })
	for _, at := range from {
		until := due(at.record.Failures, at.record.LastFailure, c.now)
		switch {
		case at.there && at.record.Running:
		case c.mayNot(at) != "":
			c.wait(Wait{Name: at.Name, Reason: c.mayNot(at)})
		case at.atInterrupt():
			c.wait(Wait{Name: at.Name, Reason: AwaitingInterrupt})
		case at.record.Failures > 0 && until.After(c.now):
			c.wait(Wait{Name: at.Name, Reason: BackingOff, Until: until})
		case c.plan.Serial && len(c.tasks) > 0:
			c.wait(Wait{Name: at.Name, Reason: Serially, On: c.tasks[0].Name})
		default:
			c.tasks = append(c.tasks, c.task(at))
		}
	}
}

// mayNot is why nothing of the package may start, whatever the others do.
func (c *chooser) mayNot(at position) Reason {
	switch {
	case c.plan.Hold:
		return Held
	case !c.plan.Admitted:
		return NotAdmitted
	case len(at.owed) > 0 && !c.plan.Drained:
		return NotDrained
	}
	return ""
}

// interrupt runs one interrupt for all that wait at theirs, once nothing else runs.
func (c *chooser) interrupt(owing []position) {
	var disruptions []Disruption
	var carriers []position
	for _, at := range owing {
		if reason := c.mayNot(at); reason != "" {
			c.waitAll(owing, reason)
			return
		}
		for _, d := range at.owed {
			disruptions, carriers = append(disruptions, d), append(carriers, at)
		}
	}
	if len(c.tasks) > 0 {
		c.waitAll(owing, AwaitingInterrupt)
		return
	}
	merged, winner := Merge(disruptions)
	carrier := carriers[winner]
	task := Task{Name: carrier.Name, Version: carrier.record.Version, Stage: carrier.stage, Epoch: carrier.record.Epoch, Attempt: 1, Disruption: merged}
	for _, at := range owing {
		task.Members = append(task.Members, at.Name)
	}
	c.tasks = append(c.tasks, task)
}

// again runs an interrupt again that failed, when it is time.
func (c *chooser) again(i Interruption) {
	reason, until := BackingOff, due(i.Failures, i.LastFailure, c.now)
	switch {
	case c.plan.Hold:
		reason, until = Held, time.Time{}
	case !c.plan.Admitted:
		reason, until = NotAdmitted, time.Time{}
	case !c.plan.Drained:
		reason, until = NotDrained, time.Time{}
	case !until.After(c.now) && len(c.tasks) == 0:
		c.tasks = append(c.tasks, c.interruptTask(i))
		return
	}
	for _, name := range i.Members {
		c.wait(Wait{Name: name, Reason: reason, Until: until})
	}
}

func (c *chooser) task(at position) Task {
	return Task{Name: at.Name, Version: at.record.Version, Stage: at.stage, Epoch: at.record.Epoch, Attempt: at.record.Failures + 1,
		Previous: at.previous, Fresh: at.record.Fresh}
}

func (c *chooser) interruptTask(i Interruption) Task {
	task := Task{Name: i.Carrier, Stage: Interrupt, Epoch: i.Epochs[i.Carrier], Attempt: i.Failures + 1, Disruption: i.Disruption, Members: i.Members}
	for _, at := range c.all {
		if at.Name == i.Carrier {
			task.Version, task.Stage, task.Fresh = at.record.Version, at.stage, at.record.Fresh
		}
	}
	return task
}

func (c *chooser) wait(w Wait) { c.waits = append(c.waits, w) }

func (c *chooser) waitAll(all []position, reason Reason) {
	for _, at := range all {
		c.wait(Wait{Name: at.Name, Reason: reason})
	}
}

// until is when a stage that was given up is tried again; zero for never.
func (l Limits) until(last time.Time) time.Time {
	if l.FailedTTL == 0 {
		return time.Time{}
	}
	return last.Add(l.FailedTTL)
}

func (w Wait) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", w.Name, w.Reason, w.On))
}
