package endpoints

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// textFormat is the form of metrics that every scraper reads. Source: the exposition formats of Prometheus, text-based
// format 0.0.4.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// writeMetrics writes the metrics of the table in the text format. It is written here rather than by client_golang, which
// costs an agent that is scraped 1.9 MiB of resident memory, of a budget of 25: code, and garbage at each scrape. A test
// has the libraries' parser and linter read what is written.
func writeMetrics(w io.Writer, v view) error {
	out := exposition{Writer: bufio.NewWriter(w)}
	for _, m := range metrics {
		out.metric, out.begun = m, false
		if m.kind == histogram {
			v.board.counted(out.histogram)
			continue
		}
		m.read(v, func(value float64, labels ...string) { out.sample("", value, m.labels, labels) })
	}
	return out.Flush() // what went wrong before is kept until then
}

// exposition writes one metric after the other.
type exposition struct {
	*bufio.Writer
	metric metric
	begun  bool // the metric's help is written
}

// sample writes one line. suffix is appended to the metric's name.
func (e *exposition) sample(suffix string, value float64, names, values []string) {
	if !e.begun {
		e.begun = true
		fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", e.metric.name, e.metric.help, e.metric.name, e.metric.kind)
	}
	e.write(e.metric.name, suffix)
	for i, name := range names {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		e.write(separator, name, `="`, escape.Replace(strings.ToValidUTF8(values[i], "�")), `"`)
	}
	if len(names) > 0 {
		e.write("}")
	}
	e.write(" ", strconv.FormatFloat(value, 'g', -1, 64), "\n")
}

func (e *exposition) write(parts ...string) {
	for _, part := range parts {
		_, _ = e.WriteString(part) // Flush tells
	}
}

// escape is for values of labels.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// histogram writes how long looks at one check took.
func (e *exposition) histogram(check string, t *tally) {
	var count uint64
	for _, n := range t.looks {
		count += n
	}
	names := append(append([]string{}, e.metric.labels...), "le")
	for i, bound := range lookBounds {
		e.sample("_bucket", float64(t.within[i]), names, []string{check, strconv.FormatFloat(bound, 'g', -1, 64)})
	}
	e.sample("_bucket", float64(count), names, []string{check, "+Inf"})
	e.sample("_sum", t.spent.Seconds(), e.metric.labels, []string{check})
	e.sample("_count", float64(count), e.metric.labels, []string{check})
}

// DescribeMetrics writes the table of metrics as Markdown.
func DescribeMetrics(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Says |\n|---|---|---|---|\n")
	for _, m := range metrics {
		labels := "-"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
