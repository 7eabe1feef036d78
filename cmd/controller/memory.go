package main

import (
	"os"
	"runtime/debug"
)

// collectOften lets the garbage collector run when the heap has grown by half, not by all, of what is in use: what the
// controller holds is large in large clusters, and what it throws away is little. $GOGC says otherwise if it is set.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}
