package format

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
)

// Markers below the folder of flags.
const (
	// StartFlag is there once anything of a plan ran on the host.
	StartFlag = "START"
	// CheckResultsFlag holds the results of the last checks.
	CheckResultsFlag = "check_results"
)

// AllCheckedFlag is there once all checks of a mode succeeded.
func AllCheckedFlag(mode Mode) string { return string(mode) + "_ALL_CHECKED" }

// FlagFolder is where the flags of one version of a package lie, below the folder of flags.
func (p *Package) FlagFolder() string { return path.Join(p.Name, p.Version) }

// Flag is the file whose presence says that a step ran, below the folder of flags. It goes by the arguments and return
// codes as config.json has them. A long list of arguments may give a name with slashes, thus folders.
func (p *Package) Flag(s Step) string {
	text := pythonList(s.Arguments, pythonString) + "_" + pythonList(s.ReturnCodes, func(code int) string { return fmt.Sprint(code) })
	return path.Join(p.FlagFolder(), s.Path) + "_" + base64.StdEncoding.EncodeToString([]byte(text))
}

// FlagContent is what is written into a step's flag. The time is local and without a zone.
func FlagContent(s Step, ran time.Time) []byte {
	return fmt.Appendf(nil, "last_run: %s\nstep_always_runs: %s", isoformat(ran, ""), pythonBool(s.Idempotent))
}

// CheckResults is the content of CheckResultsFlag. failed has one entry for each step of the mode.
func CheckResults(steps []Step, failed []bool) []byte {
	var lines []string
	for i, s := range steps[:min(len(steps), len(failed))] {
		lines = append(lines, s.Path+" "+pythonBool(failed[i]))
	}
	return []byte(strings.Join(lines, "\n"))
}

// isoformat writes a time as Python does: microseconds only where there are some.
func isoformat(t time.Time, zone string) string {
	layout := "2006-01-02T15:04:05"
	if t.Nanosecond()/int(time.Microsecond) != 0 {
		layout += ".000000"
	}
	return t.Format(layout) + zone
}

// The names of flags hold lists as Python writes them, since the first agent was written in it.

func pythonList[T any](items []T, write func(T) string) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = write(item)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pythonString quotes with single quotes, unless the text has some and no double ones.
func pythonString(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	return b.String()
}
