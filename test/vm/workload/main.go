// Command workload is run in pods of the virtual machine by the tests. As `privileges` it tries what the node agent
// does with the machine from inside its pod, one line for each; with any other arguments it says where it runs and
// waits to be told to end.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok := run(ctx)
	stop()
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context) bool {
	if len(os.Args) > 1 && os.Args[1] == "privileges" {
		return try(ctx, os.Stdout)
	}
	fmt.Println("workload runs on", os.Getenv("FETTLE_NODE_NAME"))
	<-ctx.Done()
	return true
}
