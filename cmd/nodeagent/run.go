package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Looks at the machine again and again and publishes what is wrong with it",
		Long: `Looks at the machine again and again. With a kubeconfig, or in a pod, it publishes conditions on the machine's Node,
keeps a Lease that shows that it is alive, and reports on the machine's Host object; without, it logs what it finds.

It ends on SIGTERM or SIGINT, with exit status 0; 2 when it cannot start: the configuration is wrong, or another agent
uses the state folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags(), catalogue.Kinds())
			if err != nil {
				return err
			}
			log, err := agent.NewLogger(c.Log)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), agent.Options{
				Config: c, NodeName: nodeName(c), Version: agentVersion(), Getenv: os.Getenv, Log: log,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
