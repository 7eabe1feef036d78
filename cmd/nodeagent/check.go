package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fettle-dev/fettle/internal/agent"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/probes/schedule"
)

const (
	statusUnhealthy exitStatus = 1
	statusUnchecked exitStatus = 2
)

func newCheckCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Looks at everything once and says what is wrong; needs no cluster",
		Long: `Looks at everything once and says what is wrong. It needs no cluster and, as far as files can be read, no privileges.

Exit status: 0 healthy (also when something is degraded, which is shown), 1 unhealthy, 2 could not be checked: the
configuration is wrong, or nothing is known to be broken but something could not be looked at.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, err := writerFor(output)
			if err != nil {
				return err
			}
			c, err := config.Load(cmd.Flags(), catalogue.Kinds())
			if err != nil {
				return err
			}
			p, err := lookOnce(cmd.Context(), c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			if err := write(cmd.OutOrStdout(), p); err != nil {
				return fmt.Errorf("write report: %w", err)
			}
			return p.exit()
		},
	}
	config.AddFlags(cmd.Flags(), "nodeName", "hostRoot")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return cmd
}

// pass is one standalone pass over all checks. Its JSON form is documented and stable.
type pass struct {
	Node       string          `json:"node" yaml:"node"`
	Time       time.Time       `json:"time" yaml:"time"`
	Status     string          `json:"status" yaml:"status"`
	Counts     passCounts      `json:"counts" yaml:"counts"`
	Checks     []passCheck     `json:"checks" yaml:"checks"`
	Conditions []passCondition `json:"conditions" yaml:"conditions"`
}

type passCounts struct {
	OK            int `json:"ok" yaml:"ok"`
	Degraded      int `json:"degraded" yaml:"degraded"`
	Fatal         int `json:"fatal" yaml:"fatal"`
	Unknown       int `json:"unknown" yaml:"unknown"`
	NotApplicable int `json:"notApplicable" yaml:"notApplicable"`
}

type passCheck struct {
	Name      string `json:"name" yaml:"name"`
	Condition string `json:"condition" yaml:"condition"`
	Verdict   string `json:"verdict" yaml:"verdict"`
	Reason    string `json:"reason" yaml:"reason"`
	Message   string `json:"message" yaml:"message"`
}

type passCondition struct {
	Type    string `json:"type" yaml:"type"`
	Status  string `json:"status" yaml:"status"`
	Reason  string `json:"reason" yaml:"reason"`
	Message string `json:"message" yaml:"message"`
}

// lookOnce looks at every check once; one look is enough to be believed.
func lookOnce(ctx context.Context, c config.Config, log *slog.Logger) (pass, error) {
	host, err := hostfs.Open(c.HostRoot)
	if err != nil {
		return pass{}, err
	}
	defer func() { _ = host.Close() }() // nothing was written through it
	env, end := agent.Surroundings(host, os.Getenv, log)
	defer end()
	looks, checks := catalogue.Build(c.Checks, env)
	for i := range checks {
		checks[i].Thresholds = health.Thresholds{Failure: 1, Success: 1}
	}
	engine, at := health.NewEngine(checks), time.Now()
	for _, o := range schedule.Once(ctx, looks, log) {
		engine.Observe(o.Name, o.Result, at)
	}
	return passFrom(nodeName(c), at, checks, engine.Report()), nil
}

func passFrom(node string, at time.Time, checks []health.Check, r health.Report) pass {
	p := pass{
		Node: node, Time: at.UTC().Truncate(time.Second), Status: statusWord(r),
		Counts: passCounts(r.Counts), Checks: []passCheck{}, Conditions: []passCondition{},
	}
	for i, s := range r.Checks {
		p.Checks = append(p.Checks, passCheck{Name: s.Name, Condition: checks[i].Condition, Verdict: string(s.Verdict), Reason: s.Reason, Message: s.Message})
	}
	for _, c := range r.Conditions {
		p.Conditions = append(p.Conditions, passCondition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return p
}

// nodeName is the configured name, else what a kubelet would take: the machine's name in lower case.
func nodeName(c config.Config) string {
	host, _ := os.Hostname() // without a name the report is still worth having
	return cmp.Or(c.NodeName, strings.ToLower(strings.TrimSpace(host)))
}

// statusWord : with no check at all nothing was looked at, and so nothing is known.
func statusWord(r health.Report) string {
	if len(r.Checks) == 0 {
		return "Unknown"
	}
	switch r.Summary.Verdict {
	case health.Degraded:
		return "Degraded"
	case health.Fatal:
		return "Unhealthy"
	case health.Unknown:
		return "Unknown"
	default:
		return "Healthy"
	}
}

// exit is nil for a healthy machine, else the status to end with.
func (p pass) exit() error {
	switch {
	case p.Counts.Fatal > 0:
		return statusUnhealthy
	case p.Status == "Unknown":
		return statusUnchecked
	default:
		return nil
	}
}
