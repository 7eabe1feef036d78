package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/endpoints"
)

// writeStatusTable puts on the first screen what somebody in a hurry needs: who, how, why, and what does not work.
func writeStatusTable(w io.Writer, a account) error {
	var b strings.Builder
	s, now := a.Status, time.Now()
	if a.caveat != "" {
		fmt.Fprintf(&b, "%s\n\n", a.caveat)
	}
	fmt.Fprintf(&b, "Machine\t%s\n", machineLine(s.Health, now))
	fmt.Fprintf(&b, "Agent\t%s\n", agentLine(s.Agent, now))
	fmt.Fprintf(&b, "Cluster\t%s\n", clusterLine(s))
	if s.Cluster != nil && s.Cluster.Joined {
		fmt.Fprintf(&b, "Lease\t%s\n", withDetail(s.Cluster.Lease.State, s.Cluster.Lease.Detail))
		fmt.Fprintf(&b, "Published\t%s\n", publishedLine(*s.Cluster, now))
	}
	if c := s.Credential; c != nil {
		fmt.Fprintf(&b, "Credential\t%s\n", credentialLine(*c, now))
	}
	fmt.Fprintf(&b, "Configuration\t%s\n", configurationLine(s.Configuration, now))
	if s.Configuration.Fault != "" {
		fmt.Fprintf(&b, "\nThe configuration is wrong:\n%s\n", indented(s.Configuration.Fault))
	}
	b.WriteString("\nCONDITION\tSTATUS\tREASON\tMESSAGE\n")
	for _, c := range s.Health.Conditions {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, name := range s.Health.Pending {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", name, "-", "Pending", "not decided yet; what the Node says of it stays")
	}
	b.WriteString("\nCHECK\tVERDICT\tREASON\tSINCE\tLOOKED\tMESSAGE\n")
	for _, c := range worstFirst(s.Health.Checks) {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Verdict+word(c.DryRun, " (dry run)", ""), c.Reason, ago(now, c.Since), ago(now, c.LastLook), c.Message)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(t, b.String()); err != nil {
		return err
	}
	return t.Flush()
}

// machineLine is e.g. "Unhealthy since 5m0s (CNIConfigMissing): 1 fatal, 2 ok".
func machineLine(h endpoints.Health, now time.Time) string {
	line := h.Status
	if !h.Since.IsZero() {
		line += " since " + ago(now, h.Since)
	}
	if h.Reason != "" {
		line += " (" + h.Reason + ")"
	}
	if !h.Decided {
		line += ", not decided yet"
	}
	p := pass{Status: line, Counts: passCounts(h.Counts)}
	_, counts, _ := strings.Cut(p.summary(), ": ")
	return line + ": " + counts
}

func agentLine(a endpoints.Agent, now time.Time) string {
	line := fmt.Sprintf("%s of node %s, version %s, process %d, up %s", a.Mode, a.Node, a.Version, a.PID, ago(now, a.StartedAt))
	if a.PublicKey == "" {
		line += "; NO VALUES CAN BE SEALED TO IT, the journal says why"
	}
	if a.Stalled != "" {
		line += "; STALLED: " + a.Stalled
	}
	return line
}

func clusterLine(s endpoints.Status) string {
	c := s.Cluster
	switch {
	case c == nil && s.Configuration.Fault != "": // which may name one
		return "none in what is in force of the configuration, which is wrong; the agent runs alone"
	case c == nil:
		return "none is configured; the agent runs alone"
	case !c.Joined:
		return withDetail("not joined", cmp.Or(c.Publishing.Detail, "no API server was found yet"))
	default:
		return "joined at " + c.Server
	}
}

func publishedLine(c endpoints.Cluster, now time.Time) string {
	line := withDetail(word(c.Publishing.Current, "yes", "NO"), c.Publishing.Detail)
	if !c.LastApplied.IsZero() {
		line += ", last written " + ago(now, c.LastApplied) + " ago"
	}
	return line
}

func credentialLine(c endpoints.Credential, now time.Time) string {
	line := "does not say when it expires"
	switch {
	case c.ExpiresAt.IsZero():
	case now.Before(c.ExpiresAt):
		line = "expires in " + ago(c.ExpiresAt, now)
	default:
		line = "EXPIRED " + ago(now, c.ExpiresAt) + " ago"
	}
	switch {
	case c.Renews && !c.RenewAt.IsZero():
		line += ", is renewed in " + ago(c.RenewAt, now)
	case c.Renews:
		line += ", is renewed by the agent"
	case c.Detail != "":
		line += ", is not renewed by the agent: " + c.Detail
	}
	return withDetail(line, c.Fault)
}

func configurationLine(c endpoints.Configuration, now time.Time) string {
	line := cmp.Or(c.Path, "defaults, environment and flags")
	if c.Generation > 0 {
		line += fmt.Sprintf(", generation %d", c.Generation)
	}
	if !c.LoadedAt.IsZero() {
		line += ", taken " + ago(now, c.LoadedAt) + " ago"
	}
	if len(c.RestartNeeded) > 0 {
		line += ", RESTART THE AGENT for " + strings.Join(c.RestartNeeded, ", ")
	}
	return line + word(c.Fault == "", "", ", NOT IN FORCE AS IT STANDS")
}

func withDetail(said, detail string) string {
	if detail == "" || detail == said {
		return said
	}
	return said + ": " + detail
}

func indented(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// worstFirst has what is broken at the top, and else the order of the configuration.
func worstFirst(checks []endpoints.Check) []endpoints.Check {
	order := []string{"fatal", "unknown", "degraded", "ok", "notApplicable"}
	sorted := slices.Clone(checks)
	slices.SortStableFunc(sorted, func(a, b endpoints.Check) int {
		return slices.Index(order, a.Verdict) - slices.Index(order, b.Verdict)
	})
	return sorted
}

// ago is the time from then to now as people say it: two units at most.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	d := max(now.Sub(then), 0)
	switch {
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// writeStatusJSON writes the documented, stable form. What an agent that does not run had said tells by its saidAt.
func writeStatusJSON(w io.Writer, a account) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(a.Status)
}

// writeStatusYAML writes the JSON form as YAML, with its keys in their order.
func writeStatusYAML(w io.Writer, a account) error {
	var body bytes.Buffer
	if err := writeStatusJSON(&body, a); err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(body.Bytes(), &document); err != nil {
		return err
	}
	block(&document)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return err
	}
	return e.Close()
}

// block has a node and those in it written over lines instead of within braces.
func block(n *yaml.Node) {
	n.Style = 0
	for _, each := range n.Content {
		block(each)
	}
}
