package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/version"
)

// gcPercent is how much garbage the agent lets pile up, as a share of what is in use. It has little in use and little to do,
// so collecting more often than Go does by default costs nothing that shows, and saves memory that does.
const gcPercent = 40

// startedAfter is when what the start needed, and nothing else will, is given back.
const startedAfter = 30 * time.Second

// takeLittleMemory sets how this process uses memory: no huge pages, each of which is 2 MiB for a heap of 4, little
// garbage, and none left from the start.
func takeLittleMemory() {
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) // only costs memory where the kernel does not know it
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	time.AfterFunc(startedAfter, debug.FreeOSMemory)
}

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Looks at the machine again and again and publishes what is wrong with it",
		Long: `Looks at the machine again and again. With a kubeconfig, or in a pod, it publishes conditions on the machine's Node,
keeps a Lease that shows that it is alive, and reports on the machine's Host object; without, it says what it finds in its
log, on its socket and in its status file.

It reads its configuration again when the file changes, and on SIGHUP. One that is wrong is shown and not taken: the last
good one stays in force, also over a restart; without one the defaults hold.

It ends on SIGTERM or SIGINT, with exit status 0; 64 when there is no such flag or argument; 2 when it cannot start, as
when another agent uses the state folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			takeLittleMemory()
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP) // first of all: by default it would end the process
			defer signal.Stop(hangup)
			c, watcher := reload.Start(cmd.Flags(), catalogue.Kinds())
			log, level, err := agent.NewLogger(c.Log)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), agent.Options{
				Config: c, Configuration: watcher, Hangup: hangup, NodeName: nodeName(c), Version: version.String(),
				Getenv: os.Getenv, Log: log, LogLevel: level,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
