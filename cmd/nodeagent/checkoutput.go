package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// writerFor picks the form of a report.
func writerFor(output string) (func(io.Writer, pass) error, error) {
	switch output {
	case "table":
		return writeTable, nil
	case "json":
		return writeJSON, nil
	case "yaml":
		return writeYAML, nil
	default:
		return nil, fmt.Errorf("flag --output: %q is not a form of output (allowed: table, json, yaml)", output)
	}
}

func writeJSON(w io.Writer, p pass) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(p)
}

func writeYAML(w io.Writer, p pass) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(p); err != nil {
		return err
	}
	return e.Close()
}

// writeTable puts the message last, since only it can be long.
func writeTable(w io.Writer, p pass) error {
	var rows strings.Builder
	rows.WriteString("CHECK\tCONDITION\tVERDICT\tREASON\tMESSAGE\n")
	for _, c := range p.Checks {
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Condition, c.Verdict, c.Reason, c.Message)
	}
	fmt.Fprintf(&rows, "\n%s\n", p.summary())
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(t, rows.String()); err != nil {
		return err
	}
	return t.Flush()
}

// summary is the pass in one line, e.g. "unhealthy: 1 fatal, 1 ok, 1 not applicable".
func (p pass) summary() string {
	var parts []string
	for _, c := range []struct {
		n    int
		word string
	}{
		{p.Counts.Fatal, "fatal"}, {p.Counts.Unknown, "unknown"}, {p.Counts.Degraded, "degraded"},
		{p.Counts.OK, "ok"}, {p.Counts.NotApplicable, "not applicable"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no checks"}
	}
	return strings.ToLower(p.Status) + ": " + strings.Join(parts, ", ")
}
