package health

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMessage bounds every message, in bytes.
const MaxMessage = 1024

// group is the checks, by number, that feed one condition. Those run dry feed none.
type group struct {
	condition string
	members   []int
}

// groupsOf are the groups of all conditions, the aggregate's among them, by type.
func groupsOf(checks []Check) []group {
	byType := map[string][]int{}
	for i, c := range checks {
		if c.DryRun {
			continue
		}
		byType[c.Condition] = append(byType[c.Condition], i)
		if c.Condition != AggregateType {
			byType[AggregateType] = append(byType[AggregateType], i)
		}
	}
	groups := make([]group, 0, len(byType))
	for condition, members := range byType {
		groups = append(groups, group{condition: condition, members: members})
	}
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.condition, b.condition) })
	return groups
}

// conditions folds checks into the conditions they feed. Worst wins: False, then Unknown, then True; a degraded check
// keeps the condition True but gives it its reason. One fatal check makes a condition False at once, since nothing can
// make it worse; otherwise a condition is pending until all its checks are decided.
func (e *Engine) conditions() (said []Condition, pending []string) {
	said = make([]Condition, 0, len(e.groups))
	for _, g := range e.groups {
		var bad []CheckState
		var well, noted []string
		decided := true
		for _, i := range g.members {
			switch s := e.view[i]; {
			case !e.decided[i]:
				decided = false
			case s.Verdict == OK && s.Reason == ReasonOK:
				well = append(well, s.Name)
			case s.Verdict == OK: // by its severity
				noted = append(noted, s.Name+" ("+s.Reason+")")
			case s.fails() && (g.condition != AggregateType || s.Reason != ReasonPrerequisite):
				bad = append(bad, s)
			}
		}
		slices.SortFunc(bad, worstFirst)
		switch {
		case len(bad) > 0 && (decided || bad[0].Verdict == Fatal):
			said = append(said, failing(g.condition, bad))
		case !decided:
			pending = append(pending, g.condition)
		case len(well)+len(noted) > 0:
			said = append(said, Condition{Type: g.condition, Status: StatusTrue, Reason: ReasonOK, Message: Normalise(describeWell(well, noted))})
		}
	}
	return said, pending
}

// failing is the condition that checks which are not well come to, worst first.
func failing(condition string, bad []CheckState) Condition {
	describe := describeMessages
	if condition == AggregateType {
		describe = describeReasons
	}
	return Condition{Type: condition, Status: statusOf(bad[0].Verdict), Reason: bad[0].Reason, Message: Normalise(describe(bad))}
}

func statusOf(v Verdict) Status {
	switch rankOf(v) {
	case rankFatal:
		return StatusFalse
	case rankUnseen:
		return StatusUnknown
	default:
		return StatusTrue
	}
}

func describeMessages(bad []CheckState) string {
	parts := make([]string, 0, len(bad))
	for _, s := range bad {
		parts = append(parts, s.Name+": "+s.Message)
	}
	return strings.Join(parts, "; ")
}

func describeReasons(bad []CheckState) string {
	parts := make([]string, 0, len(bad))
	for _, s := range bad {
		parts = append(parts, s.Name+" ("+s.Reason+")")
	}
	return strings.Join(parts, ", ")
}

func describeWell(well, noted []string) string {
	var parts []string
	if len(well) > 0 {
		slices.Sort(well)
		parts = append(parts, "well: "+strings.Join(well, ", "))
	}
	if len(noted) > 0 {
		slices.Sort(noted)
		parts = append(parts, "noted: "+strings.Join(noted, ", "))
	}
	return strings.Join(parts, "; ")
}

// Failing returns the checks that are degraded, fatal or unknown and do not run dry: worst first, those that are only
// shut out by a check they depend on after the others, then by name.
func (r Report) Failing() []CheckState {
	var bad []CheckState
	for _, s := range r.Checks {
		if s.fails() && !s.DryRun {
			bad = append(bad, s)
		}
	}
	slices.SortFunc(bad, worstFirst)
	return bad
}

func (s CheckState) fails() bool { return s.Verdict != OK && s.Verdict != NotApplicable }

func worstFirst(a, b CheckState) int {
	if d := rankOf(b.Verdict) - rankOf(a.Verdict); d != 0 {
		return int(d)
	}
	if ofItsOwn := (a.Reason != ReasonPrerequisite); ofItsOwn != (b.Reason != ReasonPrerequisite) {
		if ofItsOwn {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}

// Normalise makes a message fit for a condition: valid UTF-8 on one line with single spaces and nothing unprintable, at
// most MaxMessage bytes, cut between runes with an ellipsis.
func Normalise(message string) string {
	if isNormal(message) {
		return message
	}
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	message = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case !unicode.IsPrint(r) && r != utf8.RuneError:
			return -1
		default:
			return r
		}
	}, message)
	message = strings.Join(strings.Fields(message), " ")
	if len(message) <= MaxMessage {
		return message
	}
	const ellipsis = "…"
	cut := MaxMessage - len(ellipsis)
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return strings.TrimRight(message[:cut], " ") + ellipsis
}

// isNormal recognises the common case at no cost: printable ASCII with single spaces inside, and not too long.
func isNormal(message string) bool {
	if len(message) > MaxMessage {
		return false
	}
	space := true // a space here would be the first or the second
	for i := range len(message) {
		b := message[i]
		if b < ' ' || b >= utf8.RuneSelf || b == 0x7f || b == ' ' && space {
			return false
		}
		space = b == ' '
	}
	return !space || message == ""
}
