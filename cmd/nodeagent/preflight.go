package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/version"
)

const statusLacking exitStatus = 1

func newPreflightCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Tries what the agent needs on this machine and in the cluster, and says what is missing",
		Long: `Tries what the agent needs, with the same configuration as run: the machine's root file system, the state folder,
the key for sealed values, systemd, and where a cluster is configured the API server, the agent's identity and its rights
there, and that it is fenced to its own node. It writes and removes a file in the state folder and runs /bin/true on the
machine as a transient unit; what it asks of the API server is a dry run.

Exit status: 0 everything required works, 1 something required does not, 2 the configuration is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := findingWriters[output]
			if !ok {
				return fmt.Errorf("flag --output: %q is not a form of output (allowed: table, json)", output)
			}
			c, err := config.Load(cmd.Flags(), catalogue.Kinds())
			if err != nil {
				return err
			}
			findings := agent.Preflight(cmd.Context(), agent.Options{
				Config: c, NodeName: nodeName(c), Version: version.String(), Getenv: os.Getenv, Log: slog.New(slog.DiscardHandler),
			})
			if err := write(cmd.OutOrStdout(), findings); err != nil {
				return fmt.Errorf("write findings: %w", err)
			}
			for _, f := range findings {
				if f.Required && !f.OK {
					return statusLacking
				}
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

var findingWriters = map[string]func(io.Writer, []agent.Finding) error{
	"table": writeFindingTable,
	"json":  writeFindingJSON,
}

func writeFindingTable(w io.Writer, findings []agent.Finding) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	rows := []string{"NEED\tREQUIRED\tRESULT\tDETAIL"}
	for _, f := range findings {
		rows = append(rows, strings.Join([]string{f.Need, word(f.Required, "yes", "no"), word(f.OK, "ok", "missing"), f.Detail}, "\t"))
	}
	if _, err := io.WriteString(t, strings.Join(rows, "\n")+"\n"); err != nil {
		return err
	}
	return t.Flush()
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// writeFindingJSON writes the documented, stable form.
func writeFindingJSON(w io.Writer, findings []agent.Finding) error {
	type finding struct {
		Need     string `json:"need"`
		Required bool   `json:"required"`
		OK       bool   `json:"ok"`
		Detail   string `json:"detail"`
	}
	all := make([]finding, 0, len(findings))
	for _, f := range findings {
		all = append(all, finding(f))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(map[string][]finding{"findings": all})
}
