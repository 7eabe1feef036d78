// Command nodeagent finds out what is wrong with the machine it runs on and says so.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/child"
)

func main() {
	if err := child.Adopt(); err != nil {
		fmt.Fprintln(os.Stderr, "nodeagent: what checks leave behind is not cleared away:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := execute(ctx, newRootCommand())
	stop()
	os.Exit(code)
}

// newRootCommand lists the subcommands; each is made in a file of its own.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "nodeagent",
		Short:         "Finds out what is wrong with this machine and says so",
		Long:          "Finds out what is wrong with this machine and says so.\n\nExit status of every command: 64 when there is no such command, argument or flag; of others each tells.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		newCheckCommand(),
		newCleanupCommand(),
		newConfigCommand(),
		newMetricsCommand(),
		newPreflightCommand(),
		newProbesCommand(),
		newRunCommand(),
		newStatusCommand(),
		newVersionCommand(),
	)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return endWith{exitUsage, err} }) // of its subcommands too
	refuseArguments(root)
	return root
}

// refuseArguments has a command and those below it end with exitUsage for arguments that they do not take.
func refuseArguments(cmd *cobra.Command) {
	if takes := cmd.Args; takes != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := takes(cmd, args); err != nil {
				return endWith{exitUsage, err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		refuseArguments(sub)
	}
}

// execute runs the command and gives the process's exit status: that of an exitStatus or endWith error, else 2 for an
// error. What went wrong goes to stderr.
func execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var status exitStatus
	var end endWith
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &end):
		status = end.status
	default:
		status = 2
	}
	_, _ = fmt.Fprintln(root.ErrOrStderr(), "nodeagent:", err) // there is nowhere else to say it
	return int(status)
}

// exitStatus is returned by a command that has said everything there is to say and ends with a status.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// exitUsage says that the command line is wrong: EX_USAGE of sysexits.h. The systemd unit does not restart after it.
const exitUsage exitStatus = 64

// endWith is an error that is still to be said, and ends the process with a status of its own.
type endWith struct {
	status exitStatus
	error
}

func (e endWith) Unwrap() error { return e.error }
