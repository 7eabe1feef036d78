package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric is one metric of the controller. Names, types and labels are API: dashboards and alerts match on them.
type metric struct {
	name   string
	kind   kind
	labels []string
	says   string
	// buckets are the upper bounds of a histogram.
	buckets []float64
	// read emits the values at a scrape; nil for what is counted as it happens.
	read func(view, emit)
}

type kind string

const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// emit takes one value with the values of its labels.
type emit func(value float64, labels ...string)

// ruleLabel is the label by which series belong to a rule, and go with it.
const ruleLabel = "rule"

func (m *metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.says, m.labels, nil) }

func (m *metric) counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name, Help: m.says}, m.labels)
}

func (m *metric) histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.says, Buckets: m.buckets}, m.labels)
}

func (m *metric) valueType() prometheus.ValueType {
	if m.kind == counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
