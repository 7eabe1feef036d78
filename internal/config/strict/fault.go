package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Where the value was given: "FILE", "FILE:LINE", "environment NAME" or "flag --NAME".
	Where string
	// Key is the path of the key, e.g. "heartbeat.interval"; empty for the file as a whole.
	Key string
	// What is wrong, as the rest of a sentence that starts with the key.
	What string
	// Allowed says what would be right; may be empty.
	Allowed string

	line int
}

func (f Fault) String() string {
	text := f.Where + ": "
	if f.Key != "" {
		text += f.Key + ": "
	}
	text += f.What
	if f.Allowed != "" {
		text += " (allowed: " + f.Allowed + ")"
	}
	return text
}

// Faults is everything that is wrong with a configuration, never empty when returned as an error. Its text has one line
// for each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		lines = append(lines, fault.String())
	}
	return strings.Join(lines, "\n")
}

// place is where a value was given.
type place struct {
	where string
	line  int
}

func (d *Decoder) at(line int) place {
	if d.inline {
		return place{where: d.file}
	}
	return place{where: fmt.Sprintf("%s:%d", d.file, line), line: line}
}

// maxFaults is how many faults are kept; of those beyond only the number is.
const maxFaults = 100

func (d *Decoder) fault(at place, key, what, allowed string) {
	if len(d.faults) >= maxFaults {
		d.more++
		return
	}
	d.faults = append(d.faults, Fault{Where: at.where, Key: key, What: what, Allowed: allowed, line: at.line})
}

// Err returns all faults found so far as Faults, those of the file by line, then those of other sources; nil when there
// are none.
func (d *Decoder) Err() error {
	if len(d.faults) == 0 {
		return nil
	}
	faults := slices.Clone(d.faults)
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Compare(uint(a.line-1), uint(b.line-1)) // no line sorts last
	})
	if d.more > 0 {
		faults = append(faults, Fault{Where: d.file, What: fmt.Sprintf("and %d more faults", d.more)})
	}
	return faults
}

// FaultAt reports something that the values of several keys, given by their paths, come to. Its place is where the first
// of them was given that the file does not hold, else the first that it does, else the file as a whole.
func (d *Decoder) FaultAt(what, allowed string, paths ...string) {
	key, at := d.given("", paths)
	d.fault(at, key, what, allowed)
}

// FaultFrom reports something wrong with a source as a whole, named in the form of Fault.Where.
func (d *Decoder) FaultFrom(where, what, allowed string) {
	d.fault(place{where: where}, "", what, allowed)
}

// Source is where the value of a key was given, in the form of Fault.Where; empty when it was not.
func (d *Decoder) Source(path string) string { return d.places[path].where }

// closest is the candidate that was probably meant by a mistyped name, "" when none is near.
func closest(name string, candidates []string) string {
	const longest = 64 // the distance of long texts takes long, and they resemble nothing
	if len(name) > longest {
		return ""
	}
	best, distance := "", 3
	if len(name) < 6 {
		distance = 2
	}
	for _, c := range candidates {
		if strings.EqualFold(name, c) {
			return c
		}
		if n := edits(strings.ToLower(name), strings.ToLower(c)); n < distance {
			best, distance = c, n
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Unknown words the fault of a name that is not in a list.
func Unknown(what, name string, known []string) string {
	text := fmt.Sprintf("unknown %s %s", what, quote(name))
	if guess := closest(name, known); guess != "" {
		text += fmt.Sprintf("; did you mean %q?", guess)
	}
	return text
}

// quote shows a value on one line and not without end.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}
