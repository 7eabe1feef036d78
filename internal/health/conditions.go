package health

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMessage bounds every message, in bytes.
const MaxMessage = 1024

// conditions folds checks into the conditions they feed. Worst wins: False, then Unknown, then True; a degraded check
// keeps the condition True but gives it its reason. A type all of whose checks are NotApplicable is absent.
func conditions(checks []Check, states []CheckState) []Condition {
	byType := map[string][]CheckState{}
	for i, c := range checks {
		byType[c.Condition] = append(byType[c.Condition], states[i])
	}
	all := make([]Condition, 0, len(byType)+1)
	for name, group := range byType {
		if c, ok := condition(name, group, describeMessages); ok {
			all = append(all, c)
		}
	}
	if c, ok := condition(AggregateType, states, describeReasons); ok {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Condition) int { return strings.Compare(a.Type, b.Type) })
	return all
}

func condition(name string, group []CheckState, describe func([]CheckState) string) (Condition, bool) {
	if bad := failing(group); len(bad) > 0 {
		return Condition{Type: name, Status: statusOf(bad[0].Verdict), Reason: bad[0].Reason, Message: Normalise(describe(bad))}, true
	}
	var well []string
	for _, s := range group {
		if s.Verdict == OK {
			well = append(well, s.Name)
		}
	}
	if len(well) == 0 {
		return Condition{}, false
	}
	slices.Sort(well)
	return Condition{Type: name, Status: StatusTrue, Reason: ReasonOK, Message: Normalise("well: " + strings.Join(well, ", "))}, true
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

// Normalise makes a message fit for a condition: valid UTF-8 on one line with single spaces and nothing unprintable, at
// most MaxMessage bytes, cut between runes with an ellipsis.
func Normalise(message string) string {
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
