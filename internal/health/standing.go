package health

import (
	"fmt"
	"slices"
	"time"
)

// standing is where one check stands: what its looks came to, and what its history, the time and the boot make of that.
type standing struct {
	looks State
	// looked : there was a look since the process started or was frozen.
	looked bool
	// heard is when a look last came to an end.
	heard time.Time
	// wording holds the message of what the looks come to; worded is what that was.
	wording Wording
	worded  Finding
	turns   turns

	// found is what the looks, or the latch, last came to; changes are the changes of its verdict, oldest first.
	found   Finding
	changes []Change
	// worst is what a flapping check is held at; without a verdict while it does not flap.
	worst Result
	// latched : latch stands for a fatal verdict that good looks do not clear.
	latched bool
	latch   Latch

	// shown is what is said of the check, or was last said of it. decided is false where that may not be said now.
	shown   Result
	decided bool
	// since is when shown came to its verdict and reason, worsened when its verdict last became a worse one.
	since, worsened time.Time

	gate gate
	// blocker is the check because of which the gate is not open, shutSince when it was last shut.
	blocker   string
	shutSince time.Time

	// settled : what is shown follows from the rest; wake is when time alone may change that, zero: never.
	settled bool
	wake    time.Time
}

// advance takes in what the looks came to and what the time brought.
func (s *standing) advance(c *Check, bootID string, at time.Time) {
	s.expire(c, at)
	s.relatch(c, bootID)
	if found, ok := s.finding(c, bootID); ok {
		s.say(c, s.dampen(c, found, at), at)
	}
}

// observe takes in a look.
func (s *standing) observe(c *Check, r Result, at time.Time) {
	s.expire(c, at)
	s.looks = Step(s.looks, r, c.Thresholds, at)
	s.looked, s.settled = true, false
	if r.Reason != ReasonTimeout { // a look that timed out has not come to an end
		s.heard = at
	}
	s.steady(c.Flapping, at)
	s.reword(c, at)
}

// reword holds the message still of what is not well. Of the others nobody publishes it.
func (s *standing) reword(c *Check, at time.Time) {
	now := s.looks.Settled()
	if !s.looks.Decided() || badness(now.Verdict) == 0 {
		return
	}
	is := Finding{Verdict: c.Severity.cap(now).Verdict, Reason: now.Reason}
	switch {
	case is != s.worded:
		s.wording, s.worded = Wording{}, is
	case now != s.looks.last: // that look came to something else, and may not be believed
		return
	}
	s.looks.settled.Message = s.wording.Choose(now.Message, at)
}

// expire makes a verdict Unknown that was not looked at for too long. The looks from before are forgotten: it takes full
// rows to come to a verdict again.
func (s *standing) expire(c *Check, at time.Time) {
	if c.StaleAfter <= 0 || !s.looks.Decided() || s.looks.Settled().Verdict == Unknown {
		return
	}
	end := s.heard.Add(c.StaleAfter)
	if at.Before(end) {
		s.wakeAt(end)
		return
	}
	s.looks = settledAs(Result{Verdict: Unknown, Reason: ReasonStale, Message: "no look came to an end for too long"}, at)
}

// relatch latches what looks of this boot made fatal, and gives up one of another boot once looks
// came to a verdict that says otherwise. Looks that say nothing do not.
func (s *standing) relatch(c *Check, bootID string) {
	now := s.looks.Settled()
	switch {
	case c.Clearing != ClearByReboot:
		s.latched, s.latch = false, Latch{}
	case now.Verdict == Fatal:
		s.latched, s.latch = true, Latch{Reason: now.Reason, Message: now.Message, BootID: bootID}
	case s.latched && s.latch.BootID != bootID && now.Verdict != Fatal && now.Verdict != Unknown:
		s.latched, s.latch = false, Latch{}
	}
}

// finding is what the check comes to by its latch or its looks, capped by its severity; false while they say nothing.
func (s *standing) finding(c *Check, bootID string) (Result, bool) {
	if s.latched {
		r := Result{Verdict: Fatal, Reason: s.latch.Reason, Message: s.latch.Message}
		if s.latch.BootID == bootID && s.looks.Decided() && s.looks.Settled().Verdict != Fatal {
			r.Message = Normalise("stays until a reboot: " + r.Message)
		}
		return c.Severity.cap(r), true
	}
	return c.Severity.cap(s.looks.Settled()), s.looks.Decided()
}

// dampen holds a check that changes too often at the worst of what it was since the first of the changes that count,
// until none came for a while.
func (s *standing) dampen(c *Check, found Result, at time.Time) Result {
	before := s.found
	s.found = Finding{Verdict: found.Verdict, Reason: found.Reason}
	if c.Flapping.Changes <= 0 || c.Flapping.Within <= 0 {
		s.changes, s.worst = nil, Result{}
		return found
	}
	if before.Verdict != "" && before.Verdict != found.Verdict {
		s.changes = append(s.changes, Change{At: at, From: before})
	}
	old := max(len(s.changes)-c.Flapping.Changes, 0)
	for old < len(s.changes) && at.Sub(s.changes[old].At) >= c.Flapping.Within {
		old++
	}
	s.changes = slices.Delete(s.changes, 0, old)
	switch {
	case len(s.changes) == 0:
		s.worst = Result{}
	case s.flaps():
		s.worst = c.Flapping.worse(s.worst, s.found)
	case len(s.changes) >= c.Flapping.Changes:
		// A thing that comes and goes needs attention, also where it never was broken.
		s.worst = c.Flapping.worse(Result{}, Finding{Verdict: Degraded, Reason: found.Reason})
		for _, change := range s.changes {
			s.worst = c.Flapping.worse(s.worst, change.From)
		}
		s.worst = c.Flapping.worse(s.worst, s.found)
	}
	if !s.flaps() {
		return found
	}
	s.wakeAt(s.changes[len(s.changes)-1].At.Add(c.Flapping.Within))
	return c.Severity.cap(s.worst)
}

func (s *standing) flaps() bool { return s.worst.Verdict != "" }

// worse is what a flapping check is held at that was held at worst, "" for not at all, and is now found to be this.
func (f Flapping) worse(worst Result, found Finding) Result {
	if worst.Verdict != "" && badness(found.Verdict) <= badness(worst.Verdict) {
		return worst
	}
	return Result{
		Verdict: found.Verdict, Reason: ReasonFlapping,
		Message: Normalise(fmt.Sprintf("changed %d times or more within %s; at its worst %s (%s)", f.Changes, f.Within, found.Verdict, found.Reason)),
	}
}

// say sets what is shown, unless that is better than what was and comes within the hold.
func (s *standing) say(c *Check, r Result, at time.Time) {
	s.decided = true
	switch {
	case badness(r.Verdict) > badness(s.shown.Verdict):
		s.worsened = at
	case badness(r.Verdict) < badness(s.shown.Verdict) && s.holds(c, at):
		s.wakeAt(s.worsened.Add(c.MinHold))
		return
	}
	if r.Verdict != s.shown.Verdict || r.Reason != s.shown.Reason {
		s.since = at
	}
	s.shown = r
}

// holds reports whether what is shown may not get better yet.
func (s *standing) holds(c *Check, at time.Time) bool {
	return badness(s.shown.Verdict) > 0 && at.Before(s.worsened.Add(c.MinHold))
}

// startOver forgets the looks. Only what does not rest on them alone goes on being said: a latch, a check held at what it
// is, one that flaps.
func (s *standing) startOver(c *Check, at time.Time) {
	s.looks, s.looked, s.heard, s.settled = State{}, false, at, false
	if s.fixed(c, at) {
		return
	}
	s.decided = false
	if badness(s.shown.Verdict) > 0 { // found again, it is found anew
		s.shown, s.since, s.worsened = Result{}, time.Time{}, time.Time{}
	}
}

func (s *standing) fixed(c *Check, at time.Time) bool {
	return s.latched || s.flaps() || s.holds(c, at)
}

// utterable reports whether what is shown may be said: never that something works which nobody looked at.
func (s *standing) utterable() bool {
	return s.decided && (s.looked || s.shown.Verdict == Fatal || s.shown.Verdict == Unknown)
}

func (s *standing) wakeAt(at time.Time) {
	if s.wake.IsZero() || at.Before(s.wake) {
		s.wake = at
	}
}

// cap makes a result count as no worse than the severity allows.
func (s Severity) cap(r Result) Result {
	switch {
	case s == SeverityInfo && badness(r.Verdict) > badness(OK):
		r.Verdict = OK
	case s == SeverityDegraded && badness(r.Verdict) > badness(Degraded):
		r.Verdict = Degraded
	}
	return r
}

// badness orders verdicts by what they do to a condition. What does not apply is as good as what is well.
func badness(v Verdict) int {
	switch v {
	case Fatal:
		return 3
	case Unknown:
		return 2
	case Degraded:
		return 1
	default:
		return 0
	}
}
