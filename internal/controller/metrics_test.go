package controller

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scrape gives the samples of a registry by their series.
func scrape(t *testing.T, registry *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
			t.Fatal(err)
		}
	}
	samples := map[string]string{}
	for line := range strings.Lines(out.String()) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			samples[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	return samples
}

// TestMetrics follows a node through a continuous and a bootstrap-only rule, and both rules to their end.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	o := testOptions(t)
	o.Metrics = registry
	stop := w.run(t, o)
	told := func(what string, want map[string]string) {
		t.Helper()
		w.eventually(t, what, func() (bool, string) {
			samples := scrape(t, registry)
			for series, value := range want {
				if samples[series] != value {
					return false, fmt.Sprintf("%s is %q, want %q", series, samples[series], value)
				}
			}
			return true, ""
		})
	}

	w.rule(t, "net", "m")
	w.rule(t, "boot", "m", bootstrapOnly, func(r *rule) { r.Spec.Conditions[0].Type = "example.com/Boot" })
	w.node(t, "n", "m")
	w.tainted(t, "n", "r.example.com/net=pending:NoSchedule", "r.example.com/boot=pending:NoSchedule")
	told("the node is held", map[string]string{
		`fettle_controller_leading`:                                  "1",
		`fettle_rule_nodes{rule="net",state="held"}`:                 "1",
		`fettle_rule_nodes{rule="net",state="ready"}`:                "0",
		`fettle_taint_operations_total{operation="add",rule="net"}`:  "1",
		`fettle_taint_operations_total{operation="add",rule="boot"}`: "1",
		`fettle_bootstrap_completed_total{rule="boot"}`:              "0",
		`fettle_node_reaction_seconds_count{operation="add"}`:        "1",
		`fettle_agents{state="Starting"}`:                            "1",
	})

	w.condition(t, "n", network, "True")
	w.condition(t, "n", "example.com/Boot", "True")
	w.tainted(t, "n")
	told("the node is released", map[string]string{
		`fettle_rule_nodes{rule="net",state="held"}`:                          "0",
		`fettle_rule_nodes{rule="net",state="ready"}`:                         "1",
		`fettle_rule_condition_status{rule="net",status="True",type="Ready"}`: "1",
		`fettle_rule_current{rule="net"}`:                                     "1",
		`fettle_taint_operations_total{operation="remove",rule="net"}`:        "1",
		`fettle_taint_operations_total{operation="remove",rule="boot"}`:       "1",
		`fettle_bootstrap_completed_total{rule="boot"}`:                       "1",
		`fettle_bootstrap_duration_seconds_count{rule="boot"}`:                "1",
	})
	samples := scrape(t, registry)
	patches := 0
	if _, err := fmt.Sscan(samples[`fettle_api_requests_total{resource="nodes",result="answered",verb="patch"}`], &patches); err != nil || patches < 2 || patches > 3 {
		t.Errorf("%d patches of nodes were answered, want 2 or 3: %v", patches, err)
	}

	if _, err := w.Kubectl(t.Context(), "apply", "--filename=testdata/refuse-taint.yaml"); err != nil {
		t.Fatal(err)
	}
	refused := w.node(t, "refused", "refused")
	w.eventually(t, "the policy is in force", func() (bool, string) {
		err := w.Patch(t.Context(), refused.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"taints":[{"key":"r.example.com/refused","effect":"NoSchedule"}]}}`)), client.DryRunAll)
		return err != nil, "accepted"
	})
	w.rule(t, "refused", "refused")
	told("the node that cannot be written to is counted", map[string]string{`fettle_rule_nodes{rule="refused",state="failed"}`: "1"})
	if samples := scrape(t, registry); samples[`fettle_rule_write_failures_total{reason="Invalid",rule="refused"}`] == "" ||
		samples[`fettle_api_requests_total{resource="nodes",result="conflict",verb="patch"}`] == "" {
		t.Errorf("no failures in %v", samples)
	}

	for _, name := range []string{"net", "boot", "refused"} {
		if err := w.Delete(t.Context(), w.getRule(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually(t, "the series of rules that are gone have ended", func() (bool, string) {
		for series := range scrape(t, registry) {
			if strings.Contains(series, `rule="`) && !strings.Contains(series, `rule=""`) {
				return false, series
			}
		}
		return true, ""
	})

	stop()
	if left := scrape(t, registry); len(left) > 0 {
		t.Errorf("a controller that has ended still tells %v", left)
	}
}
