// Command agent measures what the node agent takes of a machine, beside an idle program with the same libraries.
//
// Both run as units on one systemd machine, the agent with its default profile and joined to a real API server. It prints
// memory, processor time and what was forked, and next to them the budgets; it judges nothing. Needs root and `make build`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fettle-dev/fettle/test/e2e/stack"
)

const (
	machine = "bench"
	warmUp  = 30 * time.Second
	every   = 5 * time.Second
)

func main() {
	minutes := flag.Float64("minutes", 3, "how long to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, time.Duration(*minutes*float64(time.Minute)))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, span time.Duration) (err error) {
	scratch, err := os.MkdirTemp("", "fettle-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // what stays behind is in the temporary folder
	s, err := stack.Start(ctx, stack.Options{Nodes: []string{machine}, AgentConfig: "# the defaults\n"})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := s.Stop(); err == nil {
			err = stopped
		}
	}()
	if err := startIdle(ctx, s, scratch); err != nil {
		return err
	}
	fmt.Fprintf(w, "one systemd machine; warming up for %s, then measuring for %s ...\n", warmUp, span)
	if err := wait(ctx, warmUp); err != nil {
		return err
	}
	agent, err := subjectOf(ctx, s.Node(machine).Machine, "nodeagent", stack.AgentUnit)
	if err != nil {
		return err
	}
	idle, err := subjectOf(ctx, s.Node(machine).Machine, "idle", "idle.service")
	if err != nil {
		return err
	}
	subjects := []*subject{agent, idle}
	forks, err := watchForks()
	if err != nil {
		return err
	}
	if err := measure(ctx, subjects, span); err != nil {
		return err
	}
	if err := exec.CommandContext(ctx, "/bin/true").Run(); err != nil {
		return err
	}
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	counted := forks.end()
	if counted.byParent[os.Getpid()] == 0 {
		return errors.New("the kernel's process events do not show even our own fork; none of the agent's can be counted")
	}
	for _, one := range subjects {
		one.forks = counted.byParent[one.pid]
	}
	if counted.lost > 0 {
		fmt.Fprintf(w, "%d reports of the kernel were lost; there may have been more forks\n", counted.lost)
	}
	return print(w, s, subjects, span)
}

// startIdle builds the reference program and starts it as a unit.
func startIdle(ctx context.Context, s *stack.Stack, scratch string) error {
	binary := filepath.Join(scratch, "idle")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, "./test/bench/idle")
	build.Dir = s.Path(".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the idle program: %w\n%s", err, out)
	}
	m := s.Node(machine).Machine
	if err := m.CopyIn(ctx, binary, "/usr/bin/idle"); err != nil {
		return err
	}
	_, err := m.Exec(ctx, "systemd-run", "--unit=idle.service", "--quiet", "/usr/bin/idle")
	return err
}

// measure samples memory, and takes processor time at both ends.
func measure(ctx context.Context, subjects []*subject, span time.Duration) error {
	for _, one := range subjects {
		if err := one.begin(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(span); time.Now().Before(end); {
		if err := wait(ctx, every); err != nil {
			return err
		}
		for _, one := range subjects {
			if err := one.sample(); err != nil {
				return err
			}
		}
	}
	return nil
}

func print(w io.Writer, s *stack.Stack, subjects []*subject, span time.Duration) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(what, budget string, value func(*subject) string) {
		fmt.Fprintf(t, "%s", what)
		for _, one := range subjects {
			fmt.Fprintf(t, "\t%s", value(one))
		}
		fmt.Fprintf(t, "\t%s\n", budget)
	}
	row("", "budget of the agent", func(one *subject) string { return one.name })
	row("resident, median MiB", "25", func(one *subject) string { return mib(median(one.resident)) })
	row("resident, most MiB", "", func(one *subject) string { return mib(most(one.resident)) })
	row("anonymous, median MiB", "8", func(one *subject) string { return mib(median(one.anonymous)) })
	row("anonymous, most MiB", "", func(one *subject) string { return mib(most(one.anonymous)) })
	row("processor, s a minute", "0.1", func(one *subject) string {
		return fmt.Sprintf("%.3f", one.processor().Seconds()/span.Minutes())
	})
	row("processes forked", "0", func(one *subject) string { return fmt.Sprint(one.forks) })
	row("threads", "", func(one *subject) string { return fmt.Sprint(one.threads) })
	row("open files", "", func(one *subject) string { return fmt.Sprint(one.files) })
	if binary, err := os.Stat(s.Program("nodeagent")); err == nil {
		fmt.Fprintf(t, "binary, MiB\t%s\t\t40\n", mib(binary.Size()))
	}
	return t.Flush()
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
