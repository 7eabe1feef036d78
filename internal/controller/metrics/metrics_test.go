package metrics

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
)

type rule = readinessv1alpha1.NodeReadinessRule

func ruleNamed(name string) rule {
	return rule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Spec:       readinessv1alpha1.NodeReadinessRuleSpec{EnforcementMode: readinessv1alpha1.EnforcementModeBootstrapOnly},
		Status: readinessv1alpha1.NodeReadinessRuleStatus{
			ObservedGeneration: 2, UnseenConditionTypes: []string{"example.com/Typo"},
			Nodes:      &readinessv1alpha1.NodeCounts{Selected: 9, Ready: 4, Held: 3, Spared: 2, Failed: 1},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}},
		},
	}
}

// rig is Metrics in a registry, and what they see.
type rig struct {
	*Metrics
	registry *prometheus.Registry
	leading  bool
	rules    []rule
}

func newRig(t *testing.T) *rig {
	r := &rig{Metrics: New(), registry: prometheus.NewPedanticRegistry(), leading: true}
	if err := r.registry.Register(r.Metrics); err != nil {
		t.Fatal(err)
	}
	r.Show(Cluster{
		Leading: func() bool { return r.leading },
		Rules:   func() []rule { return r.rules },
		Agents:  func() map[liveness.State]int { return map[liveness.State]int{liveness.Alive: 7} },
		Fleet: func() fleet.Report {
			return fleet.Report{Verdict: fleet.Partial, Agents: 8, Stale: 4, Waiting: 2, Away: 1, CanaryAge: 1500 * time.Millisecond}
		},
		Liveness: func() watch.Tally { return watch.Tally{Silences: 3, Recoveries: 1, Refuted: 5, CanaryFailures: 6} },
	})
	return r
}

func (r *rig) gather(t *testing.T) []*dto.MetricFamily {
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// scrape gives the samples as text, without comments.
func (r *rig) scrape(t *testing.T) []string {
	var out bytes.Buffer
	for _, family := range r.gather(t) {
		if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// everything lets each metric of the table have a value.
func (r *rig) everything() {
	r.rules = []rule{ruleNamed("a")}
	r.Reacted(Add, time.Second)
	r.Tainted("a", Add)
	r.WriteFailed("a", "Forbidden")
	r.Bootstrapped("a", time.Minute)
	answer(r.Metrics, http.MethodGet, "/api/v1/nodes/n", http.StatusOK)
}

func TestEveryMetricOfTheTableIsTold(t *testing.T) {
	r := newRig(t)
	r.everything()
	var told []string
	for _, family := range r.gather(t) {
		told = append(told, family.GetName())
		i := slices.IndexFunc(table, func(m *metric) bool { return m.name == family.GetName() })
		if i < 0 {
			t.Errorf("%s is not in the table", family.GetName())
			continue
		}
		if want := strings.ToUpper(string(table[i].kind)); family.GetType().String() != want {
			t.Errorf("%s is a %s, want %s", family.GetName(), family.GetType(), want)
		}
	}
	for _, m := range table {
		if !slices.Contains(told, m.name) {
			t.Errorf("%s is not told", m.name)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(r.gather(t)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestValues(t *testing.T) {
	r := newRig(t)
	r.everything()
	r.Tainted("", Remove)
	r.Bootstrapped("a", -1)
	samples := r.scrape(t)
	for _, want := range []string{
		`fettle_controller_leading 1`,
		`fettle_rule_info{dry_run="false",enforcement_mode="bootstrap-only",rule="a",suspended="false"} 1`,
		`fettle_rule_current{rule="a"} 1`,
		`fettle_rule_nodes{rule="a",state="ready"} 4`,
		`fettle_rule_nodes{rule="a",state="held"} 3`,
		`fettle_rule_nodes{rule="a",state="spared"} 2`,
		`fettle_rule_nodes{rule="a",state="failed"} 1`,
		`fettle_rule_condition_status{rule="a",status="True",type="Ready"} 1`,
		`fettle_rule_condition_status{rule="a",status="False",type="Ready"} 0`,
		`fettle_rule_unseen_condition_types{rule="a"} 1`,
		`fettle_rule_write_failures_total{reason="Forbidden",rule="a"} 1`,
		`fettle_taint_operations_total{operation="add",rule="a"} 1`,
		`fettle_taint_operations_total{operation="remove",rule="a"} 0`, // from the start
		`fettle_taint_operations_total{operation="remove",rule=""} 1`,
		`fettle_bootstrap_completed_total{rule="a"} 2`,
		`fettle_bootstrap_duration_seconds_count{rule="a"} 1`,
		`fettle_bootstrap_duration_seconds_sum{rule="a"} 60`,
		`fettle_node_reaction_seconds_count{operation="add"} 1`,
		`fettle_agents{state="Alive"} 7`,
		`fettle_agents{state="Silent"} 0`,
		`fettle_fleet_verdict{verdict="Partial"} 1`,
		`fettle_fleet_verdict{verdict="Blind"} 0`,
		`fettle_fleet_overridden 0`,
		`fettle_fleet_agents{state="expected"} 8`,
		`fettle_fleet_agents{state="stale"} 4`,
		`fettle_fleet_agents{state="waiting"} 2`,
		`fettle_fleet_agents{state="away"} 1`,
		`fettle_silences_total 3`,
		`fettle_recoveries_total 1`,
		`fettle_silence_confirmations_total{result="refuted"} 5`,
		`fettle_canary_age_seconds 1.5`,
		`fettle_canary_renewals_total{result="failed"} 6`,
		`fettle_api_requests_total{resource="nodes",result="answered",verb="get"} 1`,
	} {
		if !slices.Contains(samples, want) {
			t.Errorf("%s is not among\n%s", want, strings.Join(samples, "\n"))
		}
	}
}

func TestSeriesOfARuleEndWithIt(t *testing.T) {
	r := newRig(t)
	r.everything()
	r.Tainted("gone-before-the-first-scrape", Add)
	r.scrape(t)
	r.rules = []rule{ruleNamed("b")}
	for _, sample := range r.scrape(t) {
		if strings.Contains(sample, `rule="a"`) || strings.Contains(sample, "gone-before") {
			t.Errorf("still told: %s", sample)
		}
	}
	r.rules = nil
	r.scrape(t)
	if left := r.names(); len(left) > 0 {
		t.Errorf("remembered: %v", left)
	}
}

func TestAReplicaThatDoesNotLeadTellsNothingOfTheCluster(t *testing.T) {
	r := newRig(t)
	r.rules = []rule{ruleNamed("a")}
	r.leading = false
	for _, sample := range r.scrape(t) {
		if !strings.HasPrefix(sample, "fettle_controller_") {
			t.Errorf("told: %s", sample)
		}
	}
}

func TestNoSeriesForEachNode(t *testing.T) {
	for _, m := range table {
		for _, label := range m.labels {
			if label == "node" || label == "message" {
				t.Errorf("%s has a label %s", m.name, label)
			}
		}
	}
}

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func answer(m *Metrics, method, url string, status int) {
	request := httptest.NewRequest(method, url, nil)
	next := answering(func(*http.Request) (*http.Response, error) {
		if status == 0 {
			return nil, errors.New("refused")
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	})
	_, _ = m.Transport(next).RoundTrip(request) //nolint:bodyclose // it has none
}

func TestRequests(t *testing.T) {
	for _, tc := range []struct {
		method, url string
		status      int
		verb        string
		resource    string
		result      string
	}{
		{"GET", "/api/v1/nodes?limit=500", 200, "list", "nodes", "answered"},
		{"GET", "/api/v1/nodes?allowWatchBookmarks=true&watch=true", 200, "watch", "nodes", "answered"},
		{"GET", "/api/v1/nodes/a", 404, "get", "nodes", "refused"},
		{"PATCH", "/api/v1/nodes/a", 422, "patch", "nodes", "conflict"},
		{"PATCH", "/api/v1/nodes/a/status", 409, "patch", "nodes/status", "conflict"},
		{"POST", "/apis/events.k8s.io/v1/namespaces/default/events", 422, "create", "events", "refused"},
		{"POST", "/apis/events.k8s.io/v1/namespaces/default/events", 429, "create", "events", "throttled"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/fettle-system/leases/fettle-controller", 500, "update", "leases", "failed"},
		{"PUT", "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules/a/status", 0, "update", "nodereadinessrules/status", "unanswered"},
		{"GET", "/api/v1/namespaces/fettle-system", 200, "get", "namespaces", "answered"},
		{"DELETE", "/api/v1/nodes/a", 200, "delete", "nodes", "answered"},
		{"DELETE", "/api/v1/nodes", 200, "deletecollection", "nodes", "answered"},
		{"GET", "/apis/fettle.dev/v1alpha1", 200, "get", "discovery", "answered"},
		{"GET", "/", 200, "get", "discovery", "answered"},
	} {
		t.Run(tc.method+" "+tc.url, func(t *testing.T) {
			r := newRig(t)
			answer(r.Metrics, tc.method, tc.url, tc.status)
			want := fmt.Sprintf(`fettle_api_requests_total{resource=%q,result=%q,verb=%q} 1`, tc.resource, tc.result, tc.verb)
			if samples := r.scrape(t); !slices.Contains(samples, want) {
				t.Errorf("%s is not among\n%s", want, strings.Join(samples, "\n"))
			}
		})
	}
}

var update = flag.Bool("update", false, "write the page of reference anew")

func TestPageIsCurrent(t *testing.T) {
	const path = "../../../docs/reference/controller-metrics.md"
	if *update {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page() {
		t.Errorf("%s is not what the tables make; run this test with -update", path)
	}
}

func TestEquivalentsAreMetricsOfOurs(t *testing.T) {
	name := regexp.MustCompile(`fettle_[a-z_]+`)
	for _, e := range equivalents {
		for _, ours := range name.FindAllString(e.ours+" "+e.note, -1) {
			if !slices.ContainsFunc(table, func(m *metric) bool { return m.name == ours }) {
				t.Errorf("%s maps to %s, which is not in the table", e.theirs, ours)
			}
		}
	}
}

// BenchmarkScrape shows that a scrape costs what there are rules.
func BenchmarkScrape(b *testing.B) {
	for _, rules := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			m, registry := New(), prometheus.NewRegistry()
			registry.MustRegister(m)
			var all []rule
			for i := range rules {
				all = append(all, ruleNamed(fmt.Sprintf("rule-%03d", i)))
			}
			m.Show(Cluster{
				Leading: func() bool { return true }, Rules: func() []rule { return all },
				Agents: func() map[liveness.State]int { return nil }, Fleet: func() fleet.Report { return fleet.Report{} },
				Liveness: func() watch.Tally { return watch.Tally{} },
			})
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
