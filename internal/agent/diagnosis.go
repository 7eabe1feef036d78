package agent

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

// diagnosis folds looks into the health engine, says what changed, and passes reports on.
//
// Everything but begin, reconfigure and end runs on the scheduler's one goroutine, where begin may be called before that
// runs and end after it. So nothing is locked, and nothing that is called from here may block but settle, for a moment.
type diagnosis struct {
	engine    *health.Engine
	scheduler *schedule.Scheduler
	parts     diagnosisParts

	lost     []health.Lost // at the start, to be told of
	last     health.Report
	said     map[string]health.CheckState // by check: what was last said of it while it was decided
	revision uint64
	alarm    *time.Timer // rings when the engine is due for a tick
	rings    time.Time
}

// diagnosisParts are what a diagnosis works with.
type diagnosisParts struct {
	// looks and checks are of the same checks in the same order, as catalogue.Build makes them.
	looks  []schedule.Check
	checks []health.Check
	// seed tells machines apart until the Node's UID does; see schedule.New.
	seed string
	// remembered is what an earlier process left; bootID is this boot's.
	remembered health.Snapshot
	bootID     string

	log *slog.Logger
	// tell is given every report that says something else than the one before.
	tell func(health.Report)
	// changed, if set, is told of every check that came to another verdict or reason. Where a check is pending in between,
	// as after a restart, it is told once that is decided, and only if it then differs. before has no verdict where
	// nothing was said of the check before.
	changed func(before, after health.CheckState, condition string)
	// lost, if set, is told of every latched fault that a change of the configuration lost.
	lost func(health.Lost)
	// remember, if set, is given what must survive the process, whenever that may have changed; atOnce when it is more than
	// what was counted.
	remember func(s health.Snapshot, atOnce bool)
	// settle, if set, returns when what remember was given is kept, or soon in any case. A fault is not told before, so that
	// no crash takes back what was told.
	settle func()
}

// newDiagnosis makes a diagnosis and its scheduler. Call begin, then run the scheduler, then end.
func newDiagnosis(parts diagnosisParts) *diagnosis {
	d := &diagnosis{engine: health.NewEngine(parts.checks), parts: parts, said: map[string]health.CheckState{}}
	d.lost = d.engine.Restore(parts.remembered, parts.bootID, time.Now())
	d.scheduler = schedule.New(parts.looks, parts.seed, d.observe, parts.log)
	d.scheduler.Resumed = d.startOver
	return d
}

// begin tells the first report, which is all there is when no check is configured. What is known to be wrong from
// before is no change.
func (d *diagnosis) begin() {
	d.last = d.engine.Report()
	d.mourn(d.lost)
	d.lost = nil
	for _, s := range d.last.Checks {
		if s.Reason == health.ReasonPending {
			continue
		}
		d.said[s.Name] = s
		d.parts.log.Warn("check is as it was before the agent started", "check", s.Name, "condition", d.conditionOf(s.Name),
			"verdict", string(s.Verdict), "reason", s.Reason, "detail", s.Message, "since", s.Since.UTC().Format(time.RFC3339))
	}
	d.keep(true)
	d.parts.tell(d.last)
	d.setAlarm()
}

// end stops what would go on after the scheduler has ended.
func (d *diagnosis) end() {
	if d.alarm != nil {
		d.alarm.Stop()
	}
}

// reconfigure changes the checks, of which those that are the same go on as they are. It returns at once; any goroutine
// may call it. then, if set, is called when they are in force.
func (d *diagnosis) reconfigure(looks []schedule.Check, checks []health.Check, then func()) {
	d.scheduler.Replace(looks, func() {
		d.parts.looks, d.parts.checks = looks, checks
		d.mourn(d.engine.Reconfigure(checks, time.Now()))
		for name := range d.said {
			if d.conditionOf(name) == "" {
				delete(d.said, name)
			}
		}
		d.follow(true)
		if then != nil {
			then()
		}
	})
}

// startOver is told that the agent did not run for a while: what was found before says nothing of the machine now.
func (d *diagnosis) startOver() {
	d.engine.StartOver(time.Now())
	d.follow(true)
}

func (d *diagnosis) observe(name string, r health.Result, at time.Time) (unsettled bool) {
	d.follow(d.engine.Observe(name, r, at))
	return d.engine.Unsettled(name)
}

// tick lets the engine take in that time has passed: a hold that ended, a verdict that grew stale.
func (d *diagnosis) tick() {
	d.rings = time.Time{}
	d.follow(d.engine.Tick(time.Now()))
}

// follow does what follows from a call of the engine.
func (d *diagnosis) follow(changed bool) {
	d.keep(changed)
	if changed {
		before := d.last
		d.last = d.engine.Report()
		if d.parts.settle != nil && slices.ContainsFunc(d.last.Checks, d.newFault) {
			d.parts.settle()
		}
		for i, s := range d.last.Checks {
			d.mention(s)
			// A check that was shut out by another looks afresh, and need not wait until it is due.
			if s.Reason == health.ReasonPending && stateOf(before.Checks, i, s.Name).Reason == health.ReasonPrerequisite {
				d.scheduler.Soon(s.Name)
			}
		}
		d.parts.tell(d.last)
	}
	d.setAlarm()
}

// newFault reports whether a fault is to be said of a check that was not said before.
func (d *diagnosis) newFault(s health.CheckState) bool {
	return (s.Verdict == health.Fatal || s.Verdict == health.Degraded) && d.differs(s)
}

// differs reports whether a check came to something that is decided and was not said of it before.
func (d *diagnosis) differs(s health.CheckState) bool {
	before := d.said[s.Name]
	return s.Reason != health.ReasonPending && (before.Verdict != s.Verdict || before.Reason != s.Reason)
}

// mention says what a check came to, if that is decided and something else than before.
func (d *diagnosis) mention(s health.CheckState) {
	if !d.differs(s) {
		return
	}
	before := d.said[s.Name]
	d.said[s.Name] = s
	condition := d.conditionOf(s.Name)
	level := slog.LevelInfo
	if s.Verdict != health.OK && s.Verdict != health.NotApplicable {
		level = slog.LevelWarn
	}
	fields := []any{"check", s.Name, "condition", condition, "verdict", string(s.Verdict), "reason", s.Reason, "detail", s.Message}
	if s.DryRun {
		fields = append(fields, "dryRun", true)
	}
	d.parts.log.Log(context.Background(), level, "check changed", fields...)
	if d.parts.changed != nil {
		d.parts.changed(before, s, condition)
	}
}

// mourn says which latched faults are lost: a change of the configuration is no repair.
func (d *diagnosis) mourn(lost []health.Lost) {
	for _, l := range lost {
		d.parts.log.Warn("a latched fault is lost by a change of its check's configuration; nothing shows that it was repaired",
			"check", l.Check, "condition", l.Condition, "reason", l.Reason, "detail", l.Message)
		if d.parts.lost != nil {
			d.parts.lost(l)
		}
	}
}

// conditionOf is the condition that a check feeds; empty where there is no such check.
func (d *diagnosis) conditionOf(name string) string {
	if i := slices.IndexFunc(d.parts.checks, func(c health.Check) bool { return c.Name == name }); i >= 0 {
		return d.parts.checks[i].Condition
	}
	return ""
}

// stateOf finds a check among states, where it most likely is number i.
func stateOf(states []health.CheckState, i int, name string) health.CheckState {
	if i < len(states) && states[i].Name == name {
		return states[i]
	}
	if i = slices.IndexFunc(states, func(s health.CheckState) bool { return s.Name == name }); i >= 0 {
		return states[i]
	}
	return health.CheckState{}
}

func (d *diagnosis) keep(atOnce bool) {
	if revision := d.engine.Revision(); revision != d.revision && d.parts.remember != nil {
		d.revision = revision
		d.parts.remember(d.engine.Snapshot(), atOnce)
	}
}

// setAlarm sets it to when the engine is due for a tick. It rings on the scheduler's goroutine, so that a process that was
// frozen notices that before it takes in that time has passed.
func (d *diagnosis) setAlarm() {
	at, due := d.engine.NextTick()
	switch {
	case at.Equal(d.rings):
	case !due:
		d.alarm.Stop()
	case d.alarm == nil:
		d.alarm = time.AfterFunc(time.Until(at), func() { d.scheduler.Do(d.tick) })
	default:
		d.alarm.Reset(time.Until(at))
	}
	d.rings = at
}
