package health

import "time"

// rank orders verdicts from good to bad the way conditions are judged: True (ok, degraded), then Unknown, then False.
type rank int

const (
	rankOK rank = iota
	rankDegraded
	// rankUnseen is that of Unknown and of NotApplicable: neither look says that the thing is well or that it is not.
	rankUnseen
	rankFatal
	ranks
)

func rankOf(v Verdict) rank {
	switch v {
	case OK:
		return rankOK
	case Degraded:
		return rankDegraded
	case Fatal:
		return rankFatal
	default:
		return rankUnseen
	}
}

// kinds is the number of verdicts there are.
const kinds = 5

// kindOf numbers the verdicts. One that does not exist is no look at all, and so Unknown.
func kindOf(v Verdict) int {
	switch v {
	case OK:
		return 0
	case Degraded:
		return 1
	case Fatal:
		return 2
	case NotApplicable:
		return 3
	default:
		return 4
	}
}

// State is what is remembered of one check's looks from look to look. It is a value: copies share nothing. The zero State is pending: nothing has been seen.
type State struct {
	settled Result
	decided bool
	since   time.Time
	last    Result
	looks   int
	seen    [kinds]sighting // by kindOf

	// Looks in a row, up to the last one:
	atLeast [ranks]int // this bad or worse
	atMost  [ranks]int // this good or better
	run     int        // with the verdict of the last one
}

// sighting is the latest look of one verdict.
type sighting struct {
	Result
	look int // counted from 1
}

// Settled is where the check stands after its thresholds.
func (s State) Settled() Result {
	if !s.decided {
		return pending()
	}
	return s.settled
}

// Since is when the check came to the verdict and reason of Settled, zero before its first look.
func (s State) Since() time.Time { return s.since }

// Decided says whether the looks so far were enough to say anything.
func (s State) Decided() bool { return s.decided }

// Unsettled says whether another look soon would help: undecided, or the last look disagrees with the settled verdict.
func (s State) Unsettled() bool { return !s.decided || s.last.Verdict != s.settled.Verdict }

// Step folds one look into a check's state.
//
// A check gets worse after Failure looks in a row that are all at least that bad, and better after Success looks in a
// row that are all at least that good; so each change has a full row of looks behind it, also when looks alternate.
// Looks that say nothing follow the Failure threshold: that many Unknown looks in a row make the check Unknown, that
// many NotApplicable ones make it NotApplicable, and until then it stays what it was. A row long enough to be believed
// whose looks contradict each other makes the check Unknown, with ReasonLooksDisagree where no look said why.
//
// A pending check follows the same rules and is Unknown with ReasonLooksDisagree when Failure+Success looks brought no
// verdict, so that a check that flickers from the start cannot keep the machine undecided for ever.
//
// Within one verdict the latest look's reason and message are taken at once.
func Step(prev State, r Result, limits Thresholds, at time.Time) State {
	r.Message = Normalise(r.Message)
	if kindOf(r.Verdict) == kindOf(Unknown) {
		r.Verdict = Unknown
	}
	next := count(prev, r)
	to, moved := destination(next, max(limits.Failure, 1), max(limits.Success, 1))
	switch {
	case moved:
		next.settled, next.decided = to, true
	case prev.decided && r.Verdict == prev.settled.Verdict:
		next.settled = r
	}
	if now, before := next.Settled(), prev.Settled(); now.Verdict != before.Verdict || now.Reason != before.Reason || prev.since.IsZero() {
		next.since = at
	}
	return next
}

// count adds the look to every row it continues and ends those it does not.
func count(prev State, r Result) State {
	next := prev
	next.looks++
	next.run++
	if prev.last.Verdict != r.Verdict {
		next.run = 1
	}
	for level := rankOK; level < ranks; level++ {
		if rankOf(r.Verdict) >= level {
			next.atLeast[level]++
		} else {
			next.atLeast[level] = 0
		}
		if rankOf(r.Verdict) <= level {
			next.atMost[level]++
		} else {
			next.atMost[level] = 0
		}
	}
	next.last = r
	next.seen[kindOf(r.Verdict)] = sighting{Result: r, look: next.looks}
	return next
}

// destination says where the looks counted so far take the check, if anywhere else than where it stands.
func destination(s State, failure, success int) (Result, bool) {
	if v := s.last.Verdict; (v == NotApplicable || v == Unknown) && s.run >= failure {
		return s.last, !s.decided || s.settled.Verdict != v
	}
	if !s.decided {
		return firstVerdict(s, failure, success)
	}
	here := rankOf(s.settled.Verdict)
	for level := rankFatal; level > here; level-- {
		if s.atLeast[level] >= failure {
			return s.represent(level, s.atLeast[level]), true
		}
	}
	for level := rankOK; level < here; level++ {
		need := success
		if level == rankUnseen {
			// A mixed row is believed only when the good looks in it had their chance to be a row of their own.
			need = max(failure, success)
		}
		if s.atMost[level] >= need {
			return s.represent(level, s.atMost[level]), true
		}
	}
	return Result{}, false
}

func firstVerdict(s State, failure, success int) (Result, bool) {
	switch {
	case s.atLeast[rankFatal] >= failure:
		return s.represent(rankFatal, s.atLeast[rankFatal]), true
	case s.atLeast[rankUnseen] >= failure:
		return s.represent(rankUnseen, s.atLeast[rankUnseen]), true
	case s.atMost[rankOK] >= success:
		return s.represent(rankOK, s.atMost[rankOK]), true
	case s.atLeast[rankDegraded] >= failure, s.atMost[rankDegraded] >= max(failure, success):
		return s.represent(rankDegraded, s.looks), true
	case s.looks >= failure+success:
		return disagree(), true
	default:
		return Result{}, false
	}
}

// represent gives the latest look of that rank to speak for the last row looks.
func (s State) represent(level rank, row int) Result {
	switch level {
	case rankOK:
		return s.seen[kindOf(OK)].Result
	case rankDegraded:
		return s.seen[kindOf(Degraded)].Result
	case rankFatal:
		return s.seen[kindOf(Fatal)].Result
	}
	// An Unknown look in the row says why; one from before it would speak of something else.
	if was := s.seen[kindOf(Unknown)]; was.look > s.looks-row {
		return was.Result
	}
	return disagree()
}

// settledAs is the state of a check that is known to stand at r, before any look: it takes full rows to move it.
func settledAs(r Result, since time.Time) State {
	return State{settled: r, decided: true, since: since}
}

func pending() Result {
	return Result{Verdict: Unknown, Reason: ReasonPending, Message: "not looked at often enough yet"}
}

func disagree() Result {
	return Result{Verdict: Unknown, Reason: ReasonLooksDisagree, Message: "looks in a row contradict each other"}
}
