package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// report prints one part as a table: what, the controller's figure, the bare loop's, their ratio, the budget.
type report struct {
	out      io.Writer
	rows     *tabwriter.Writer
	requests controlplane.Requests
}

func newReport(out io.Writer, title string) *report {
	fmt.Fprintf(out, "\n%s\n", title)
	r := &report{out: out, rows: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	fmt.Fprintln(r.rows, "  \tcontroller\tbare loop\tratio\tbudget")
	return r
}

// row prints a line; figures that do not apply are empty.
func (r *report) row(what, controller, bare, ratio, budget string) {
	fmt.Fprintf(r.rows, "  %s\t%s\t%s\t%s\t%s\n", what, controller, bare, ratio, budget)
}

// end prints what has been collected.
func (r *report) end() {
	_ = r.rows.Flush() // to standard output
	if len(r.requests) > 0 {
		fmt.Fprintf(r.out, "  requests of the controller: %s\n", requests(r.requests))
	}
}

// latencies prints the distribution of times from a condition to its taint, as one watch shows both.
func (r *report) latencies(ours, theirs []time.Duration, budget string) {
	a, b := distribution(ours), distribution(theirs)
	for i, name := range []string{"p50", "p99", "max"} {
		ratio, limit, bare := "", "", ""
		if len(theirs) > 0 {
			bare = millis(b[i])
			ratio = fmt.Sprintf("%.2f", a[i].Seconds()/b[i].Seconds())
		}
		if name == "p99" {
			limit = budget
		}
		r.row("condition→taint "+name+", ms", millis(a[i]), bare, ratio, limit)
	}
}

func distribution(values []time.Duration) [3]time.Duration {
	if len(values) == 0 {
		return [3]time.Duration{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return [3]time.Duration{sorted[len(sorted)/2], sorted[len(sorted)*99/100], sorted[len(sorted)-1]}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func mib(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// requests says what the controller asked of the API server, by verb and resource.
func requests(of controlplane.Requests) string {
	counts := of.Counts()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", what, counts[what]))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
