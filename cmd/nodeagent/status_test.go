package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/health"
)

// told is what a running agent knows besides health.
type told struct {
	config     endpoints.Configuration
	cluster    *endpoints.Cluster
	credential *endpoints.Credential
}

func (t told) Stalled() string                        { return "" }
func (t told) Configuration() endpoints.Configuration { return t.config }
func (t told) Cluster() *endpoints.Cluster            { return t.cluster }
func (t told) Credential() *endpoints.Credential      { return t.credential }
func (t told) Counters() endpoints.Counters           { return endpoints.Counters{} }

// joined is an agent whose every part works.
func joined() told {
	return told{
		config: endpoints.Configuration{Path: "/etc/fettle/nodeagent.yaml", Generation: 3, LoadedAt: time.Now().Add(-time.Hour)},
		cluster: &endpoints.Cluster{
			Joined: true, Server: "https://10.0.0.1:6443", Lease: endpoints.Lease{Held: true, State: "Holding"},
			Publishing: endpoints.Publishing{Current: true}, LastApplied: time.Now().Add(-2 * time.Hour),
		},
		credential: &endpoints.Credential{Renews: true, ExpiresAt: time.Now().Add(30*time.Hour + time.Minute), RenewAt: time.Now().Add(24*time.Hour + time.Minute)},
	}
}

func reportOf(v health.Verdict, reason, message string) health.Report {
	counts := map[health.Verdict]health.Counts{health.OK: {OK: 2}, health.Fatal: {OK: 1, Fatal: 1}}[v]
	status := map[health.Verdict]health.Status{health.OK: health.StatusTrue, health.Fatal: health.StatusFalse}[v]
	at := time.Now().Add(-5 * time.Hour)
	summary := health.Summary{Verdict: v, Since: at}
	if v != health.OK {
		summary.Reason = reason
	}
	return health.Report{
		Decided: true, Counts: counts, Summary: summary,
		Conditions: []health.Condition{{Type: "fettle.dev/NetworkReady", Status: status, Reason: reason, Message: message}},
		Checks: []health.CheckState{
			{Name: "root-filesystem", Result: health.Result{Verdict: health.OK, Reason: "OK"}, Since: at},
			{Name: "cni-config", Result: health.Result{Verdict: v, Reason: reason, Message: message}, Since: at},
		},
	}
}

// serve has an agent answer on a socket, and gives the flags that find it.
func serve(t *testing.T, source told, r health.Report) []string {
	t.Helper()
	dir := t.TempDir()
	board := endpoints.NewBoard()
	board.Configured([]health.Check{{Name: "cni-config", Condition: "fettle.dev/NetworkReady"}, {Name: "root-filesystem"}})
	board.Say(r)
	o := endpoints.Options{
		Socket: filepath.Join(dir, "s"), StatusFile: filepath.Join(dir, "status.json"), Board: board, Source: source,
		Agent: endpoints.Agent{Version: "v1", Node: "gpu-17", Mode: "Service", PID: 42, PublicKey: "hpke-x25519:AAAA", StartedAt: time.Now().Add(-100 * time.Hour)},
		Log:   slog.New(slog.DiscardHandler),
	}
	server := endpoints.New(o)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, asked := endpoints.Ask(t.Context(), o.Socket)
		_, read := endpoints.ReadFile(o.StatusFile)
		if asked == nil && read == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(asked, read)
		}
	}
	return []string{"--socket", o.Socket, "--status-file", o.StatusFile}
}

func status(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t, append([]string{"status"}, args...)...)
}

func containsAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

func TestStatusOfAHealthyMachine(t *testing.T) {
	at := serve(t, joined(), reportOf(health.OK, "OK", ""))
	out, _, code := status(t, at...)
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	containsAll(t, out,
		"Machine        Healthy since 5h0m: 2 ok\n",
		"Agent          Service of node gpu-17, version v1, process 42, up 4d4h\n",
		"Cluster        joined at https://10.0.0.1:6443\n",
		"Lease          Holding\n",
		"Published      yes, last written 2h0m ago\n",
		"Credential     expires in 30h0m, is renewed in 24h0m\n",
		"Configuration  /etc/fettle/nodeagent.yaml, generation 3, taken 1h0m ago\n",
		"CHECK            VERDICT  REASON  SINCE  LOOKED  MESSAGE\n",
	)
}

func TestStatusOfABrokenMachineSaysWhy(t *testing.T) {
	out, _, code := status(t, serve(t, joined(), reportOf(health.Fatal, "CNIConfigMissing", "no file in /etc/cni/net.d"))...)
	if code != 1 {
		t.Errorf("exit status %d", code)
	}
	containsAll(t, out, "Machine        Unhealthy since 5h0m (CNIConfigMissing): 1 fatal, 1 ok\n", "fettle.dev/NetworkReady  False   CNIConfigMissing  no file in /etc/cni/net.d\n")
	if strings.Index(out, "\ncni-config") > strings.Index(out, "\nroot-filesystem") {
		t.Errorf("what is broken is not at the top:\n%s", out)
	}
}

func TestStatusOfAHealthyMachineThatNobodyIsToldOf(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*endpoints.Cluster)
		says   string
	}{
		"no API server": {func(c *endpoints.Cluster) { *c = endpoints.Cluster{} }, "Cluster        not joined: no API server was found yet\n"},
		"no lease":      {func(c *endpoints.Cluster) { c.Lease = endpoints.Lease{State: "Failing", Detail: "timeout"} }, "Lease          Failing: timeout\n"},
		"not published": {func(c *endpoints.Cluster) { c.Publishing = endpoints.Publishing{Detail: "forbidden"} }, "Published      NO: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			source := joined()
			tc.change(source.cluster)
			out, _, code := status(t, serve(t, source, reportOf(health.OK, "OK", ""))...)
			if code != 1 {
				t.Errorf("exit status %d", code)
			}
			containsAll(t, out, tc.says)
		})
	}
}

func TestStatusAloneWithAFault(t *testing.T) {
	source := told{config: endpoints.Configuration{Fault: "a.yaml:3: checks: x\na.yaml:4: log: y", RestartNeeded: []string{"stateDir"}}, credential: &endpoints.Credential{ExpiresAt: time.Now().Add(-time.Hour), Detail: "a file is delivered", Fault: "refused"}}
	out, _, code := status(t, serve(t, source, reportOf(health.OK, "OK", ""))...)
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	containsAll(t, out, "none in what is in force of the configuration, which is wrong; the agent runs alone", "EXPIRED 1h0m ago, is not renewed by the agent: a file is delivered: refused", "RESTART THE AGENT for stateDir", ", NOT IN FORCE AS IT STANDS\n", "\n  a.yaml:3: checks: x\n  a.yaml:4: log: y\n")
}

func TestStatusOfACredentialThatTellsNothing(t *testing.T) {
	source := told{credential: &endpoints.Credential{Detail: "it is not a JSON Web Token"}}
	out, _, _ := status(t, serve(t, source, reportOf(health.OK, "OK", ""))...)
	containsAll(t, out, "none is configured; the agent runs alone", "does not say when it expires, is not renewed by the agent: it is not a JSON Web Token")
}

func TestStatusWithoutAnAgent(t *testing.T) {
	at := serve(t, joined(), reportOf(health.OK, "OK", ""))
	file := at[3]
	said, err := endpoints.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	said.SaidAt = time.Now().Add(-3 * time.Hour)
	body, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(t.TempDir(), "status.json")
	if err := os.WriteFile(last, body, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, code := status(t, "--socket=/nowhere/s", "--status-file", last)
	if code != 2 {
		t.Errorf("exit status %d", code)
	}
	containsAll(t, out, "NO AGENT ANSWERS. This is what it last said, 3h0m ago; look further with: systemctl status nodeagent; journalctl -u nodeagent\n", "Machine        Healthy")

	if _, stderr, code := status(t, "--socket=/nowhere/s", "--status-file="); code != 2 || !strings.Contains(stderr, "no agent answers") || !strings.Contains(stderr, "--status-file is empty") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
	out, stderr, code := status(t, "--socket=/nowhere/s", "--status-file=/nowhere/f")
	if code != 2 || out != "" {
		t.Errorf("exit status %d, %q", code, out)
	}
	containsAll(t, stderr, "no agent answers", "/nowhere/s", "/nowhere/f", "systemctl status nodeagent")
}

// An agent may be set to listen on no socket.
func TestStatusOfAnAgentThatIsNotAsked(t *testing.T) {
	at := serve(t, joined(), reportOf(health.OK, "OK", ""))
	out, _, code := status(t, append(at, "--socket=")...)
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	containsAll(t, out, "The agent was not asked. This is what it last wrote, ", "Machine        Healthy")
}

func TestStatusForms(t *testing.T) {
	r := reportOf(health.Fatal, "CNIConfigMissing", "true")
	r.Checks[0].Message = "007"
	at := serve(t, joined(), r)
	asJSON, _, _ := status(t, append(at, "-o=json")...)
	asYAML, _, code := status(t, append(at, "-o=yaml")...)
	if code != 1 || !strings.Contains(asYAML, "\n    version: v1\n") && !strings.Contains(asYAML, "\n  version: v1\n") {
		t.Errorf("exit status %d\n%s", code, asYAML)
	}
	var a, b any
	if err := json.Unmarshal([]byte(asJSON), &a); err != nil {
		t.Fatal(err)
	}
	var viaYAML map[string]any
	if err := yaml.Unmarshal([]byte(asYAML), &viaYAML); err != nil {
		t.Fatal(err)
	}
	delete(viaYAML, "saidAt")
	delete(a.(map[string]any), "saidAt")
	again, err := json.Marshal(viaYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("as JSON %v\nas YAML %v", a, b)
	}
	if _, stderr, code := status(t, append(at, "-o=xml")...); code != 2 || !strings.Contains(stderr, "allowed: table, json, yaml") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}

func TestMetricsOfTheRunningAgent(t *testing.T) {
	at := serve(t, joined(), reportOf(health.OK, "OK", ""))
	if out, _, code := run(t, "metrics", "--socket", at[1]); code != 0 || !strings.Contains(out, "\nfettle_lease_held 1\n") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	if _, stderr, code := run(t, "metrics", "--socket=/nowhere/s"); code != 2 || !strings.Contains(stderr, "systemctl status nodeagent") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}

// The page is made by `make generate` from the table; this holds it against it.
func TestThePageOfMetricsIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := endpoints.DescribeMetrics(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(page), out.String()) {
		t.Error("docs/reference/metrics.md is not what `nodeagent metrics describe` prints; run make generate")
	}
}
