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
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "privileges" {
		if !try(ctx, os.Stdout) {
			os.Exit(1)
		}
		return
	}
	fmt.Println("workload runs on", os.Getenv("FETTLE_NODE_NAME"))
	<-ctx.Done()
}
