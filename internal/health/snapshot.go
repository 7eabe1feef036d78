package health

import (
	"slices"
	"time"
)

// Snapshot is what must survive the process, of all checks of which there is something to remember.
//
// Looks in a row are not in it: a check that was on its way to a verdict is on its way anew, and an unsettled check is
// looked at soon. Nor is when a check was last looked at, so that a machine on which nothing changes writes nothing.
type Snapshot struct {
	// BootID is the boot in which it was taken.
	BootID string       `json:"bootID"`
	Checks []Remembered `json:"checks,omitempty"`
}

// Remembered is what is remembered of one check. Times are UTC.
type Remembered struct {
	Check      string `json:"check"`
	Condition  string `json:"condition"`
	Definition string `json:"definition,omitempty"`
	// Verdict and Reason are what was last said of it; no verdict: nothing. Message only where it is not well.
	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	// Since is when it came to that, Worsened when its verdict last became a worse one.
	Since    time.Time `json:"since,omitzero"`
	Worsened time.Time `json:"worsened,omitzero"`
	// Found is what its looks came to, where that is not what is said.
	Found Finding `json:"found,omitzero"`
	// Latch stands for a fatal verdict that only a reboot lets clear.
	Latch *Latch `json:"latch,omitempty"`
	// Changes of what its looks came to, oldest first, at most as many as make it flap.
	Changes []Change `json:"changes,omitempty"`
	// Flapping is what it is held at because it flaps.
	Flapping *Flaw `json:"flapping,omitempty"`
}

// Finding is a verdict and its reason.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
}

// Flaw is a Result that is not well.
type Flaw struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	Message string  `json:"message"`
}

// Latch is a fatal finding and the boot in which it was last made.
type Latch struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	BootID  string `json:"bootID"`
}

// Lost is a latched fault that no reboot cleared and that nobody stands for any more: its check was taken away, looks at
// something else now, or latches no more.
type Lost struct {
	Check, Condition string
	Latch
}

// Change is a change of verdict: when, and away from what.
type Change struct {
	At   time.Time `json:"at"`
	From Finding   `json:"from"`
}

// mark is all of a standing that is remembered, in a form that can be compared.
type mark struct {
	shown           Result
	since, worsened time.Time
	found           Finding
	worst           Result
	latched         bool
	latch           Latch
	changes         int
	change          time.Time
}

func (s *standing) mark() mark {
	m := mark{shown: s.shown, since: s.since, worsened: s.worsened, found: s.found, worst: s.worst, latched: s.latched, latch: s.latch, changes: len(s.changes)}
	if badness(m.shown.Verdict) == 0 {
		m.shown.Message = ""
	}
	if m.changes > 0 {
		m.change = s.changes[m.changes-1].At
	}
	return m
}

// Revision moves whenever Snapshot comes to something else.
func (e *Engine) Revision() uint64 { return e.revision }

// Snapshot is what to give to Restore in the next process. It shares nothing with the engine.
func (e *Engine) Snapshot() Snapshot {
	snapshot := Snapshot{BootID: e.bootID}
	for i, c := range e.checks {
		if r, ok := e.standings[i].remember(c); ok {
			snapshot.Checks = append(snapshot.Checks, r)
		}
	}
	return snapshot
}

func (s *standing) remember(c Check) (Remembered, bool) {
	m := s.mark()
	r := Remembered{
		Check: c.Name, Condition: c.Condition, Definition: c.Definition,
		Verdict: m.shown.Verdict, Reason: m.shown.Reason, Message: m.shown.Message,
		Since: wall(m.since), Worsened: wall(m.worsened),
	}
	if badness(r.Verdict) == 0 {
		r.Worsened = time.Time{}
	}
	if m.found != (Finding{Verdict: m.shown.Verdict, Reason: m.shown.Reason}) {
		r.Found = m.found
	}
	if m.latched {
		r.Latch = &m.latch
	}
	if s.flaps() {
		r.Flapping = &Flaw{Verdict: m.worst.Verdict, Reason: m.worst.Reason, Message: m.worst.Message}
	}
	for _, change := range s.changes {
		r.Changes = append(r.Changes, Change{At: wall(change.At), From: change.From})
	}
	return r, r.Verdict != "" || m.found.Verdict != "" || m.latched || len(r.Changes) > 0
}

func wall(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// Restore takes up what an earlier process remembered, before the first look; bootID is this boot's. Call it also where
// there is nothing to take up: the engine learns the boot from it.
//
// Of the same boot, what was fatal or unknown is said as it was until looks come to something else, by their thresholds.
// What was well or degraded is said of no machine that nobody looked at: it is pending, and so is what was bad in
// another boot, unless it is latched, held or flaps. A latch of another boot stands until looks of this one come to ok,
// degraded or not applicable. What was remembered of another definition or condition is dropped; latched faults that get
// lost by that are given back.
//
// Times that lie in the future of at, as after a clock was set, count as at.
func (e *Engine) Restore(snapshot Snapshot, bootID string, at time.Time) (lost []Lost) {
	e.bootID = bootID
	for _, r := range snapshot.Checks {
		if r.Latch != nil && !e.keepsLatch(r.Check, r.Condition, r.Definition) {
			lost = append(lost, Lost{Check: r.Check, Condition: r.Condition, Latch: *r.Latch})
		}
		i, ok := e.index[r.Check]
		if !ok || e.checks[i].Condition != r.Condition || e.checks[i].Definition != r.Definition {
			continue
		}
		e.standings[i] = recall(&e.checks[i], r, snapshot.BootID == bootID, at)
	}
	e.settle(at)
	e.revision++
	return lost
}

// recall is where a check stands that is remembered so.
func recall(c *Check, r Remembered, sameBoot bool, at time.Time) standing {
	s := standing{
		heard: at, since: rebase(r.Since, at), worsened: rebase(r.Worsened, at), found: r.Found,
		shown: c.Severity.cap(Result{Verdict: r.Verdict, Reason: r.Reason, Message: Normalise(r.Message)}),
	}
	if !known(s.shown.Verdict) {
		s.shown, s.since = Result{}, time.Time{}
	}
	if s.found.Verdict == "" {
		s.found = Finding{Verdict: s.shown.Verdict, Reason: s.shown.Reason}
	}
	if r.Latch != nil && c.Clearing == ClearByReboot {
		s.latched, s.latch = true, *r.Latch
		s.latch.Message = Normalise(s.latch.Message)
	}
	for _, change := range r.Changes {
		if known(change.From.Verdict) {
			s.changes = append(s.changes, Change{At: rebase(change.At, at), From: change.From})
		}
	}
	slices.SortStableFunc(s.changes, func(a, b Change) int { return a.At.Compare(b.At) })
	if r.Flapping != nil && known(r.Flapping.Verdict) && len(s.changes) > 0 && at.Sub(s.changes[len(s.changes)-1].At) < c.Flapping.Within {
		s.worst = Result{Verdict: r.Flapping.Verdict, Reason: ReasonFlapping, Message: Normalise(r.Flapping.Message)}
	}
	s.recallWording(at)
	bad := s.shown.Verdict == Fatal || s.shown.Verdict == Unknown
	s.decided = bad && (sameBoot || s.fixed(c, at))
	switch {
	case sameBoot && bad && !s.latched && badness(s.found.Verdict) > badness(Degraded):
		r := Result{Verdict: s.found.Verdict, Reason: s.found.Reason}
		if r.Reason == s.shown.Reason {
			r = s.shown
		}
		s.looks = settledAs(r, s.since)
	case !sameBoot && !s.decided:
		s.shown, s.since, s.worsened = Result{}, time.Time{}, time.Time{}
	}
	return s
}

// recallWording goes on with the message that was said: that of what was found, where it was not said of something else.
func (s *standing) recallWording(at time.Time) {
	message := s.shown.Message
	switch {
	case s.latched:
		message = s.latch.Message
	case s.found != Finding{Verdict: s.shown.Verdict, Reason: s.shown.Reason}:
		return
	}
	if badness(s.found.Verdict) > 0 {
		s.worded = s.found
		s.wording.Choose(message, at)
		s.wording.moved = true // perhaps; a restart is no reason to believe another move
	}
}

func known(v Verdict) bool { return v == Unknown || kindOf(v) != kindOf(Unknown) }

// rebase gives a time of a clock on the wall the reading of at's clock.
func rebase(t, at time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return at.Add(-max(at.Sub(t), 0))
}
