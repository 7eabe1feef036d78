package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func newConfigCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Works with configuration files",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newConfigValidateCommand())
	return parent
}

func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Checks a configuration file and lists everything that is wrong with it",
		Long: `Checks a configuration file as the agent would read it, without environment and flags, and lists everything that is
wrong with it as FILE:LINE: KEY: what is wrong (allowed: what would be right).

Exit status: 0 valid, 2 not valid or not readable.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := config.LoadFile(args[0], catalogue.Kinds()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", args[0])
			return err
		},
	}
}
