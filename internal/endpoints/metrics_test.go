package endpoints

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fettle-dev/fettle/internal/health"
)

// gathered is what a scraper makes of the metrics.
func gathered(t *testing.T, agent Agent, board *Board, source Source) map[string]*dto.MetricFamily {
	t.Helper()
	var text bytes.Buffer
	if err := writeMetrics(&text, New(Options{Agent: agent, Board: board, Source: source}).view()); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheMetricsAreThoseOfTheTable(t *testing.T) {
	agent, board, source := well()
	found := gathered(t, agent, board, source)
	var families []*dto.MetricFamily
	for _, m := range metrics {
		f := found[m.name]
		if f == nil {
			t.Errorf("%s is in the table and was not exposed", m.name)
			continue
		}
		families = append(families, f)
		delete(found, m.name)
		if got := strings.ToLower(f.GetType().String()); got != string(m.kind) || !strings.HasPrefix(m.help, strings.TrimSuffix(f.GetHelp(), ".")) {
			t.Errorf("%s is a %s and says %q", m.name, got, f.GetHelp())
		}
		for _, each := range f.GetMetric() {
			var labels []string
			for _, l := range each.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, m.labels) {
				t.Errorf("%s has labels %q, the table says %q", m.name, labels, m.labels)
			}
		}
	}
	if len(found) > 0 {
		t.Errorf("exposed and not in the table: %q", slices.Sorted(maps.Keys(found)))
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// values of a metric by the values of its labels.
func values(f *dto.MetricFamily) map[string]float64 {
	found := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		found[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return found
}

func TestWhatMetricsSay(t *testing.T) {
	agent, board, source := well()
	found := gathered(t, agent, board, source)
	for _, tc := range []struct {
		metric, labels string
		want           float64
	}{
		{"fettle_agent_info", "v1.2.3 gpu-17 Service b", 1},
		{"fettle_check_status", "cni-config fettle.dev/NetworkReady fatal", 1},
		{"fettle_check_status", "cni-config fettle.dev/NetworkReady ok", 0},
		{"fettle_check_dry_run", "root-filesystem", 1},
		{"fettle_check_last_look_timestamp_seconds", "root-filesystem", float64(noon.Unix())},
		{"fettle_check_looks_total", "cni-config fatal", 1},
		{"fettle_condition_status", "fettle.dev/NetworkReady False", 1},
		{"fettle_condition_status", "fettle.dev/NetworkReady True", 0},
		{"fettle_config_valid", "", 1},
		{"fettle_config_restart_needed", "", 0},
		{"fettle_lease_held", "", 1},
		{"fettle_lease_failures_total", "", 1},
		{"fettle_api_calls_total", "report refused", 5},
		{"fettle_lease_renewed_timestamp_seconds", "", float64(noon.Unix() + 3)},
		{"fettle_credential_expiry_timestamp_seconds", "", float64(noon.Add(24 * time.Hour).Unix())},
	} {
		got, ok := values(found[tc.metric])[tc.labels]
		if !ok || got != tc.want {
			t.Errorf("%s{%s} is %v, want %v, of %v", tc.metric, tc.labels, got, tc.want, values(found[tc.metric]))
		}
	}
	for _, m := range found["fettle_check_duration_seconds"].GetMetric() {
		if h := m.GetHistogram(); m.GetLabel()[0].GetValue() == "root-filesystem" &&
			(h.GetSampleCount() != 1 || h.GetSampleSum() != 0.25 || h.GetBucket()[2].GetCumulativeCount() != 0 || h.GetBucket()[3].GetCumulativeCount() != 1) {
			t.Errorf("%v", h)
		}
	}
}

func TestWithoutAClusterThereIsNoLease(t *testing.T) {
	agent, board, source := well()
	source.cluster, source.credential = nil, nil
	for name := range gathered(t, agent, board, source) {
		for _, prefix := range []string{"fettle_lease", "fettle_publish", "fettle_cluster", "fettle_credential", "fettle_events", "fettle_api"} {
			if strings.HasPrefix(name, prefix) {
				t.Errorf("%s is exposed", name)
			}
		}
	}
}

func TestLabelsOfAnyTextAreReadAsTheyAre(t *testing.T) {
	for text, want := range map[string]string{`a "b" \n\`: `a "b" \n\`, "a\nb": "a\nb", "\xff": "�", "": ""} {
		agent, board, source := well()
		agent.Node = text
		for _, label := range gathered(t, agent, board, source)["fettle_agent_info"].GetMetric()[0].GetLabel() {
			if label.GetName() == "node" && label.GetValue() != want {
				t.Errorf("%q is read as %q", text, label.GetValue())
			}
		}
	}
}

func TestAScraperThatGoesAwayIsAnErrorAlone(t *testing.T) {
	agent, board, source := well()
	if err := writeMetrics(gone{}, New(Options{Agent: agent, Board: board, Source: source}).view()); err == nil {
		t.Error("it was written")
	}
}

// gone is a scraper that went away.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestTheBoardCounts(t *testing.T) {
	b := NewBoard()
	b.Configured([]health.Check{{Name: "a", Condition: "X"}, {Name: "b", Condition: "Y"}})
	say := func(v health.Verdict) {
		b.Say(health.Report{Checks: []health.CheckState{{Name: "a", Result: health.Result{Verdict: v}}}})
	}
	say(health.Unknown)
	say(health.Unknown)
	say(health.OK)
	say(health.Fatal)
	b.Looked("gone", health.Result{}, noon, 0)
	b.Looked("b", health.Result{Verdict: health.OK}, noon, time.Minute)
	transitions := map[string]uint64{}
	count := func(check string, t *tally) { transitions[check] = t.transitions }
	b.counted(count)
	if want := map[string]uint64{"a": 2, "b": 0}; !maps.Equal(transitions, want) {
		t.Errorf("%v, want %v", transitions, want)
	}
	b.Configured([]health.Check{{Name: "a", Condition: "X"}, {Name: "c", Condition: "Y"}})
	transitions = map[string]uint64{}
	b.counted(count)
	if want := map[string]uint64{"a": 2, "c": 0}; !maps.Equal(transitions, want) {
		t.Errorf("after a reload %v, want %v", transitions, want)
	}
}

func TestDescribeMetrics(t *testing.T) {
	var out bytes.Buffer
	if err := DescribeMetrics(&out); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "\n"); rows != len(metrics)+2 {
		t.Errorf("%d rows", rows)
	}
	if want := "| `fettle_check_looks_total` | counter | `check`, `result` |"; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in\n%s", want, out.String())
	}
}
