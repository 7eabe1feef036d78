// Command idle links everything the agent links and does nothing: what it takes is the price of the libraries, and what
// the agent takes beyond it is the price of the work. See test/bench/agent.
package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/fettle-dev/fettle/internal/agent"
)

// linked keeps the linker from leaving the agent out.
var linked = agent.Run

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if linked == nil {
		return
	}
	<-ctx.Done()
}
