// Command testrun runs the project's test levels one after the other and closes with one count of everything.
//
//	testrun [-leave-out "vm e2e"] [level ...]
//
// Levels are a table (levels.go). A level that is left out is named and its tests are counted in the last lines, and a
// level that ran no test at all is a failure. Source of the format: test2json, read by gotest.tools/gotestsum/testjson.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"gotest.tools/gotestsum/testjson"
)

func main() {
	leaveOut := flag.String("leave-out", os.Getenv("FETTLE_LEAVE_OUT"), "levels to leave out, separated by spaces (or FETTLE_LEAVE_OUT)")
	flag.Parse()

	if err := atRoot(); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	chosen, out, err := choose(levels, flag.Args(), strings.Fields(*leaveOut))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	var sum totals
	for _, l := range chosen {
		sum.add(l, run(ctx, l))
		if ctx.Err() != nil {
			break
		}
	}
	sum.leftOut = countLeftOut(ctx, out)
	fmt.Print(sum.closing())
	if sum.bad() || ctx.Err() != nil {
		os.Exit(1)
	}
}

// choose splits the table into what runs and what is left out. Unknown names are errors.
func choose(all []level, only, leaveOut []string) (chosen, out []level, err error) {
	known := map[string]bool{}
	for _, l := range all {
		known[l.name] = true
	}
	wanted, unwanted := map[string]bool{}, map[string]bool{}
	for _, n := range only {
		wanted[n] = true
	}
	for _, n := range leaveOut {
		unwanted[n] = true
	}
	for _, n := range append(append([]string{}, only...), leaveOut...) {
		if !known[n] {
			return nil, nil, fmt.Errorf("no test level %q; there are: %s", n, names(all))
		}
	}
	for _, l := range all {
		if (len(only) > 0 && !wanted[l.name]) || unwanted[l.name] {
			out = append(out, l)
			continue
		}
		chosen = append(chosen, l)
	}
	return chosen, out, nil
}

// outcome is what one level came to.
type outcome struct {
	total, failed, skipped int
	err                    error
	took                   time.Duration
}

// run runs one level and prints failures in full and one line for each package.
func run(ctx context.Context, l level) outcome {
	fmt.Printf("\n=== level %s: %s\n", l.name, l.says)
	start := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, l.args...)...)
	cmd.Dir = l.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{err: err}
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return outcome{err: err}
	}
	if err := cmd.Start(); err != nil {
		return outcome{err: err}
	}
	format := testjson.NewEventFormatter(os.Stdout, "pkgname", testjson.FormatOptions{Icons: "text"})
	seen, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: stdout, Stderr: stderr, Handler: printer{format}})
	waited := cmd.Wait()
	o := outcome{took: time.Since(start).Round(time.Second)}
	if seen != nil {
		o.total, o.failed, o.skipped = seen.Total(), len(seen.Failed()), len(seen.Skipped())
		testjson.PrintSummary(os.Stdout, seen, testjson.SummarizeAll)
		if o.failed == 0 && len(seen.Errors()) > 0 {
			err = errors.Join(err, errors.New(strings.Join(seen.Errors(), "\n")))
		}
	}
	if o.failed == 0 {
		o.err = errors.Join(err, waited)
	}
	if o.total == 0 && o.err == nil {
		o.err = errors.New("ran no test")
	}
	return o
}

// printer shows events as they come; what a build prints goes to standard error.
type printer struct{ testjson.EventFormatter }

func (p printer) Event(event testjson.TestEvent, seen *testjson.Execution) error {
	return p.Format(event, seen)
}

func (p printer) Err(text string) error {
	_, err := fmt.Fprintln(os.Stderr, text)
	return err
}

// countLeftOut asks the test binaries of the levels that did not run how many tests they hold.
func countLeftOut(ctx context.Context, out []level) map[string]int {
	counts := map[string]int{}
	for _, l := range out {
		list := exec.CommandContext(ctx, "go", append([]string{"test", "-list", "^(Test|Fuzz)"}, l.args...)...)
		list.Dir = l.dir
		listed, err := list.Output()
		if err != nil {
			counts[l.name] = -1
			continue
		}
		for line := range bytes.Lines(listed) {
			if bytes.HasPrefix(line, []byte("Test")) || bytes.HasPrefix(line, []byte("Fuzz")) {
				counts[l.name]++
			}
		}
	}
	return counts
}

// totals adds the levels up.
type totals struct {
	lines                  []string
	total, failed, skipped int
	broken                 []string
	leftOut                map[string]int
}

func (t *totals) add(l level, o outcome) {
	t.total += o.total
	t.failed += o.failed
	t.skipped += o.skipped
	line := fmt.Sprintf("%-13s %5d tests, %d failed, %d skipped in %s", l.name, o.total, o.failed, o.skipped, o.took)
	if o.err != nil {
		t.broken = append(t.broken, l.name)
		line += fmt.Sprintf("; broken: %v", o.err)
	}
	t.lines = append(t.lines, line)
}

func (t *totals) bad() bool { return t.failed > 0 || len(t.broken) > 0 || t.total == 0 }

func (t *totals) closing() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n=== in all\n%s\n", strings.Join(t.lines, "\n"))
	for _, l := range levels {
		n, ok := t.leftOut[l.name]
		switch {
		case !ok:
		case n < 0:
			fmt.Fprintf(&b, "left out: level %s (its tests could not be counted)\n", l.name)
		default:
			fmt.Fprintf(&b, "left out: level %s, %d tests\n", l.name, n)
		}
	}
	failed := t.failed + len(t.broken)
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped\n", t.total-t.failed-t.skipped, failed, t.skipped)
	return b.String()
}

func names(all []level) string {
	var n []string
	for _, l := range all {
		n = append(n, l.name)
	}
	return strings.Join(n, ", ")
}

// atRoot makes sure that the levels' packages are named from where they are.
func atRoot() error {
	if _, err := os.Stat("tools/go.mod"); err != nil {
		return fmt.Errorf("run me in the root of the repository: %w", err)
	}
	return nil
}
