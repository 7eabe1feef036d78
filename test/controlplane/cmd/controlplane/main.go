// Command controlplane builds or finds the programs of the test control plane, and runs one by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "controlplane",
		Short:         "Build or find the control plane's programs; print their folder as the last line",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := controlplane.Binaries(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
	cmd.AddCommand(run())
	return cmd
}

func run() *cobra.Command {
	var opts controlplane.Options
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a control plane until interrupted; print the path of its kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := controlplane.Start(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig()); err != nil {
				return errors.Join(err, c.Stop())
			}
			<-cmd.Context().Done()
			return c.Stop()
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.ControllerManager, "controller-manager", true, "run kube-controller-manager")
	flags.BoolVar(&opts.Scheduler, "scheduler", true, "run kube-scheduler")
	flags.BoolVar(&opts.Audit, "audit", false, "record every request in audit.log beside the kubeconfig")
	flags.StringVar(&opts.AdvertiseAddress, "advertise-address", "", "address that the Service kubernetes.default points to (default 10.0.2.2)")
	flags.StringToStringVar(&opts.HostAliases, "host-alias", nil, "NAME=ADDRESS that only the API server resolves, to reach kubelets; may be repeated")
	return cmd
}
