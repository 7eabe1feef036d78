// Command fettle-step runs one step of a package and writes down how it ended. systemd starts it; it is not for people.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fettle-dev/fettle/internal/packages/step"
)

// Exit statuses beside that of the step.
const (
	exitFault = 1
	exitUsage = 64
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: fettle-step ORDER")
		return exitUsage
	}
	if args[0] == "--works" { // whether it can be executed where it lies
		return 0
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	order, err := step.ReadOrder(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "fettle-step:", err)
		return exitUsage
	}
	verdict, err := step.Run(stop, order, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "fettle-step:", err)
		return exitFault
	case verdict.Succeeded:
		return 0
	case verdict.Exit > 0:
		return verdict.Exit
	}
	return exitFault
}
