package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/endpoints"
)

const (
	statusNotWell     exitStatus = 1
	statusUnreachable exitStatus = 2
)

// askLimit is how long a running agent has for its answer.
const askLimit = 10 * time.Second

func newStatusCommand() *cobra.Command {
	var output, socket, file string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Asks the running agent how it and the machine are",
		Long: `Asks the agent that runs on this machine, over its socket, how the machine is and how the agent itself does. Where no
agent answers, and to those who are not root, it shows what the agent last wrote into its status file, and how long ago
that was.

Exit status: 0 the machine is healthy (also when something is degraded, which is shown) and that is published where a
cluster is configured, 1 it is not or is not published, 2 no agent answers, or what it wrote is more than two minutes old.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, err := statusWriterFor(output)
			if err != nil {
				return err
			}
			a, err := askOrRead(cmd.Context(), socket, file)
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), a); err != nil {
				return fmt.Errorf("write status: %w", err)
			}
			switch {
			case !a.current:
				return statusUnreachable
			case !wellAndSaid(a.Status):
				return statusNotWell
			default:
				return nil
			}
		},
	}
	defaults := config.DefaultEndpoints()
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	cmd.Flags().StringVar(&socket, "socket", defaults.Socket, "socket of the agent, its endpoints.socket")
	cmd.Flags().StringVar(&file, "status-file", defaults.StatusFile, "file to read where no agent answers, its endpoints.statusFile")
	return cmd
}

// account is what an agent said of itself.
type account struct {
	endpoints.Status
	// caveat says where it is from, when it is not from the agent itself; empty: it is.
	caveat string
	// current : the agent runs, as far as can be told.
	current bool
}

// freshFor is the age up to which a status file shows that its agent runs: it is written once a minute.
const freshFor = 2 * time.Minute

// askOrRead asks the agent, else reads its file; each only where it is named.
func askOrRead(ctx context.Context, socket, file string) (account, error) {
	if socket == "" && file == "" {
		return account{}, endWith{exitUsage, errors.New("flags --socket and --status-file are both empty, so that there is nothing to ask; " +
			"name what endpoints.socket or endpoints.statusFile of the agent's configuration names")}
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	asked := errNotAsked
	if socket != "" {
		var said endpoints.Status
		if said, asked = endpoints.Ask(ctx, socket); asked == nil {
			return account{Status: said, current: true}, nil
		}
		asked = fmt.Errorf("no agent answers: %w", asked)
	}
	if file == "" {
		return account{}, errors.Join(asked, errors.New("flag --status-file is empty, so that no file was read"), errors.New(lookFurther))
	}
	said, read := endpoints.ReadFile(file)
	if read != nil {
		return account{}, errors.Join(asked, read, errors.New(lookFurther))
	}
	return reading(said, asked, time.Now()), nil
}

// errNotAsked : there was no socket to ask at.
var errNotAsked = errors.New("flag --socket is empty, so that no agent was asked")

// reading is what an agent last wrote, and why it was not asked itself.
func reading(said endpoints.Status, asked error, now time.Time) account {
	a := account{Status: said, current: now.Sub(said.SaidAt) <= freshFor}
	age := ago(now, said.SaidAt)
	switch {
	case errors.Is(asked, errNotAsked):
		a.caveat = "The agent was not asked. This is what it last wrote, " + age + " ago."
	case errors.Is(asked, fs.ErrPermission) && a.current:
		a.caveat = "Only root may ask the agent. This is what it last wrote, " + age + " ago."
	default:
		a.caveat, a.current = "NO AGENT ANSWERS. This is what it last said, "+age+" ago; "+lookFurther, false
	}
	return a
}

const lookFurther = "look further with: systemctl status nodeagent; journalctl -u nodeagent"

// wellAndSaid : nothing on the machine is broken or unknown, and where there is a cluster it is told so.
func wellAndSaid(s endpoints.Status) bool {
	well := s.Health.Status == "Healthy" || s.Health.Status == "Degraded"
	return well && len(endpoints.Unready(s)) == 0
}

func newMetricsCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Prints the metrics of the running agent, as Prometheus reads them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
			defer cancel()
			body, err := endpoints.Get(ctx, socket, "/metrics")
			if err != nil {
				return errors.Join(err, errors.New(lookFurther))
			}
			_, err = cmd.OutOrStdout().Write(body)
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", config.DefaultEndpoints().Socket, "socket of the agent, its endpoints.socket")
	cmd.AddCommand(&cobra.Command{
		Use:   "describe",
		Short: "Prints the metrics there are, as Markdown",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return endpoints.DescribeMetrics(cmd.OutOrStdout()) },
	})
	return cmd
}

// statusWriterFor picks the form of a status.
func statusWriterFor(output string) (func(io.Writer, account) error, error) {
	switch output {
	case "table":
		return writeStatusTable, nil
	case "json":
		return writeStatusJSON, nil
	case "yaml":
		return writeStatusYAML, nil
	default:
		return nil, fmt.Errorf("flag --output: %q is not a form of output (allowed: table, json, yaml)", output)
	}
}
