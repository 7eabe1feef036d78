package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/version"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Looks at the machine again and again and publishes what is wrong with it",
		Long: `Looks at the machine again and again. With a kubeconfig, or in a pod, it publishes conditions on the machine's Node,
keeps a Lease that shows that it is alive, and reports on the machine's Host object; without, it logs what it finds.

It ends on SIGTERM or SIGINT, with exit status 0; 78 when the configuration is wrong, so that a supervisor need not start
it over and over; 2 when it cannot start for another reason, such as another agent that uses the state folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags(), catalogue.Kinds())
			if err != nil {
				return endWith{exitConfig, err}
			}
			log, err := agent.NewLogger(c.Log)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), agent.Options{
				Config: c, NodeName: nodeName(c), Version: version.String(), Getenv: os.Getenv, Log: log,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
