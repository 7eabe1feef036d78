package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func newProbesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probes",
		Short: "Tells of the checks there are",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "describe [CHECK ...]",
		Short: "Prints what checks look at, their options and their reasons, as Markdown",
		RunE: func(cmd *cobra.Command, names []string) error {
			if len(names) == 0 {
				if err := catalogue.Describe(cmd.OutOrStdout(), catalogue.Kinds()...); err != nil {
					return err
				}
				return catalogue.DescribeCommon(cmd.OutOrStdout())
			}
			kinds, err := kindsNamed(names)
			if err != nil {
				return err
			}
			return catalogue.Describe(cmd.OutOrStdout(), kinds...)
		},
	})
	return cmd
}

func kindsNamed(names []string) ([]probes.Kind, error) {
	var found []probes.Kind
	all := catalogue.Kinds()
	for _, name := range names {
		at := slices.IndexFunc(all, func(k probes.Kind) bool { return k.Name == name })
		if at < 0 {
			var known []string
			for _, k := range all {
				known = append(known, k.Name)
			}
			return nil, fmt.Errorf("there is no check %q; there are: %s", name, strings.Join(known, ", "))
		}
		found = append(found, all[at])
	}
	return found, nil
}
