package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func newConfigCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Works with the agent's configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newConfigDocsCommand(), newConfigPrintCommand(), newConfigValidateCommand())
	return parent
}

func newConfigValidateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Checks a configuration and lists everything that is wrong with it",
		Long: `Checks a configuration file, or standard input for -, as the agent would read it, without environment and flags, and
lists everything that is wrong with it as FILE:LINE: KEY: what is wrong (allowed: what would be right). Without FILE it
checks what run would go by with this environment and these flags: the file that they name, and themselves.

Exit status: 0 valid, 2 not valid or not readable.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				source := config.NewSource(cmd.Flags(), catalogue.Kinds())
				path, _ := source.Path()
				if _, err := source.Load(); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, environment and flags are valid\n", path)
				return err
			}
			if cmd.Flags().NFlag() > 0 {
				return endWith{exitUsage, errors.New("FILE is checked alone, without flags; leave it out to check what flags come to")}
			}
			if err := validate(args[0], cmd.InOrStdin()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", args[0])
			return err
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

func validate(name string, stdin io.Reader) error {
	if name != "-" {
		_, err := config.LoadFile(name, catalogue.Kinds())
		return err
	}
	_, err := config.ReadFrom(stdin, "standard input", catalogue.Kinds())
	return err
}

func newConfigPrintCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Prints the value of every key and where it came from",
		Long: `Prints the value of every key, as the agent would have it with this file, this environment and these flags, and where
it came from: default, FILE:LINE, environment NAME or flag --NAME. The YAML form is itself a configuration file. Secrets are
shown as ` + strict.Hidden + `.

Exit status: 0, or 2 when the configuration is not valid.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(config.Effective, io.Writer) error{
				"yaml": config.Effective.WriteYAML,
				"json": config.Effective.WriteJSON,
			}[output]
			if !ok {
				return fmt.Errorf("flag --output: %q is not a form of output (allowed: yaml, json)", output)
			}
			effective, err := config.NewSource(cmd.Flags(), catalogue.Kinds()).Explain()
			if err != nil {
				return err
			}
			return write(effective, cmd.OutOrStdout())
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	return cmd
}

func newConfigDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Prints the reference of all keys, variables and flags, as Markdown",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return config.Docs(cmd.OutOrStdout(), catalogue.Kinds())
		},
	}
}
