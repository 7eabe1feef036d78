package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/version"
)

func newCleanupCommand() *cobra.Command {
	var force, state, stay bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Withdraws from the cluster what the agent said of this node",
		Long: `Withdraws what agents said of this node, with the same configuration as run: their conditions on the Node, the status of
the Host, and the Lease. The Host itself stays, since it is the controller's, and events stay until they expire. It may be
repeated, and what is not there needs no withdrawing.

It refuses while an agent runs on this machine, and while one elsewhere holds the node's lease and renews it; to see
that it may have to wait for as long as that lease lasts.

With a configuration that is not valid it goes by what run would go by: the last valid file, which the state folder keeps,
else what is not at fault. If that names no cluster, nobody knows whether there is one, and --kubeconfig must.

With --stay it does not end when it is done, so that pods of a DaemonSet that do it are not started over and over.

Exit status: 0 nothing is left, 2 something is, or could not be looked at.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			c, watcher := reload.Start(cmd.Flags(), catalogue.Kinds())
			fault := watcher.Fault()
			if fault != nil {
				log.Warn("configuration is not in force as it stands", "file", watcher.Status().Path, "error", fault)
			}
			err := agent.Cleanup(cmd.Context(), agent.CleanupOptions{
				Options: agent.Options{
					Config: c, NodeName: nodeName(c), Version: version.String(), Getenv: os.Getenv,
					Log: log,
				},
				Force: force, State: state, MustJoin: fault != nil,
				Say: func(what string) { fmt.Fprintln(cmd.OutOrStdout(), what) },
			})
			if err == nil && stay {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing is left; staying until told to end")
				<-cmd.Context().Done()
			}
			return err
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "withdraw although another living agent holds the node's lease")
	cmd.Flags().BoolVar(&stay, "stay", false, "do not end when it is done, until told to")
	cmd.Flags().BoolVar(&state, "state", false, "also remove what the agent keeps in its state folder, its keys among it")
	return cmd
}
