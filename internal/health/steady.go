package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// turns are the changes of a check's reason while its verdict stands.
type turns struct {
	of   Finding     // what looks last came to
	at   []time.Time // the latest changes, oldest first, of those that count
	many bool        // there were too many, and there are still some
	// reasons that there were since the verdict came up, sorted.
	reasons []string
}

// steady gives a check whose reason changes too often while its verdict stands one reason for all of them: each change
// would be a write and an event. The verdict is believed, and so gets better as soon as it may.
//
// It is not remembered over restarts, after which it takes as many changes again.
func (s *standing) steady(rule Flapping, at time.Time) {
	now := s.looks.Settled()
	if !s.looks.Decided() || badness(now.Verdict) == 0 || rule.Changes <= 0 || rule.Within <= 0 {
		s.turns = turns{}
		return
	}
	if now.Verdict != s.turns.of.Verdict {
		s.turns = turns{of: Finding{Verdict: now.Verdict, Reason: now.Reason}, reasons: []string{now.Reason}}
		return
	}
	if last := s.looks.last; last.Verdict == now.Verdict {
		s.turns.take(last.Reason, rule, at)
	}
	if s.turns.many {
		s.looks.settled.Reason = ReasonFlapping
		s.looks.settled.Message = Normalise(fmt.Sprintf("changed its reason %d times or more within %s: %s", rule.Changes, rule.Within, strings.Join(s.turns.reasons, ", ")))
	}
}

// take takes in a look of the same verdict.
func (t *turns) take(reason string, rule Flapping, at time.Time) {
	if reason != t.of.Reason {
		t.of.Reason = reason
		t.at = append(t.at, at)
	}
	if i, known := slices.BinarySearch(t.reasons, reason); !known {
		t.reasons = slices.Insert(t.reasons, i, reason)
	}
	old := max(len(t.at)-rule.Changes, 0)
	for old < len(t.at) && at.Sub(t.at[old]) >= rule.Within {
		old++
	}
	t.at = slices.Delete(t.at, 0, old)
	t.many = len(t.at) >= rule.Changes || t.many && len(t.at) > 0
}
