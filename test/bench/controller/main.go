// Command controller measures the controller at the size of large clusters, beside a bare loop that does the same writes
// and nothing else.
//
// The real program runs as a child against a real API server, with simulated agents on every node. Whatever has a bare
// loop to be compared with runs as interleaved pairs, the controller stopped while the loop runs. It prints figures and
// budgets and judges nothing but correctness: when a taint is wrong in the end, it fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var s sizes
	flag.IntVar(&s.nodes, "nodes", 5000, "nodes of the cluster")
	flag.IntVar(&s.burst, "burst", 1000, "nodes that change at once; the first size at which memory is told")
	flag.IntVar(&s.flapping, "flapping", 500, "nodes whose conditions flap")
	flag.IntVar(&s.rules, "rules", 20, "rules, each over every node")
	flag.IntVar(&s.pairs, "pairs", 3, "pairs of controller and bare loop; medians are told")
	flag.DurationVar(&s.span, "span", 20*time.Second, "how long each part with a steady load lasts")
	only := flag.String("only", "", "parts to run, separated by commas; empty for all: "+strings.Join(partNames(), ","))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, s, chosen(*only))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func chosen(only string) func(string) bool {
	if only == "" {
		return func(string) bool { return true }
	}
	return func(name string) bool {
		for one := range strings.SplitSeq(only, ",") {
			if one == name {
				return true
			}
		}
		return false
	}
}
