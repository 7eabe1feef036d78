package endpoints

import (
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// collector makes the metrics of the table at each scrape, from what the agent knows anyway; between scrapes it costs
// nothing.
type collector struct {
	look  func() view
	descs []*prometheus.Desc // as metrics
}

// newRegistry has the agent's metrics and those of its process, and nothing that a library registers by itself.
func newRegistry(look func() view) (*prometheus.Registry, error) {
	c := &collector{look: look}
	for _, m := range metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, m.labels, nil))
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return registry, nil
}

func (c *collector) Describe(all chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		all <- desc
	}
}

func (c *collector) Collect(all chan<- prometheus.Metric) {
	v := c.look()
	for i, m := range metrics {
		desc := c.descs[i]
		if m.kind == histogram {
			v.board.counted(func(check string, t *tally) { all <- t.histogram(desc, check) })
			continue
		}
		m.read(v, func(value float64, labels ...string) {
			all <- orInvalid(desc)(prometheus.NewConstMetric(desc, valueTypes[m.kind], value, labels...))
		})
	}
}

var valueTypes = map[kind]prometheus.ValueType{gauge: prometheus.GaugeValue, counter: prometheus.CounterValue}

func (t *tally) histogram(desc *prometheus.Desc, check string) prometheus.Metric {
	var count uint64
	for _, n := range t.looks {
		count += n
	}
	buckets := make(map[float64]uint64, len(lookBounds))
	for i, bound := range lookBounds {
		buckets[bound] = t.within[i]
	}
	return orInvalid(desc)(prometheus.NewConstHistogram(desc, count, t.spent.Seconds(), buckets, check))
}

// orInvalid has a metric that cannot be made, by a label that is no UTF-8 say, fail the scrape and not the agent.
func orInvalid(desc *prometheus.Desc) func(prometheus.Metric, error) prometheus.Metric {
	return func(m prometheus.Metric, err error) prometheus.Metric {
		if err != nil {
			return prometheus.NewInvalidMetric(desc, err)
		}
		return m
	}
}

// DescribeMetrics writes the table of metrics as Markdown.
func DescribeMetrics(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Says |\n|---|---|---|---|\n")
	for _, m := range metrics {
		labels := "-"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
