package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
)

// Operations on taints, as label values. An adoption writes no taint.
const (
	Add    = "add"
	Remove = "remove"
	Adopt  = "adopt"
)

// Metrics counts what the controller does, and is a prometheus.Collector of that and of the state of the cluster. It may
// be used concurrently.
type Metrics struct {
	reaction, bootstrapDuration                             *prometheus.HistogramVec
	taintOperations, writeFailures, bootstraps, apiRequests *prometheus.CounterVec

	cluster atomic.Pointer[Cluster]

	mu sync.Mutex
	// counted are the names of rules that may have series. Guarded by mu.
	counted map[string]bool
}

// Cluster gives the state of the cluster at a scrape. Every function must be quick and safe for concurrent use.
type Cluster struct {
	// Leading reports whether this replica acts.
	Leading func() bool
	// Rules gives all rules; nobody changes them.
	Rules func() []readinessv1alpha1.NodeReadinessRule
	// Agents counts agents by state.
	Agents func() map[liveness.State]int
	// Fleet gives the verdict on all agents and its numbers.
	Fleet func() fleet.Report
	// Liveness counts what was made of silence.
	Liveness func() watch.Tally
}

// view is the state of the cluster that one scrape shows; empty on a replica that does not lead.
type view struct {
	leading  bool
	rules    []readinessv1alpha1.NodeReadinessRule
	agents   map[liveness.State]int
	fleet    fleet.Report
	liveness watch.Tally
}

// New returns Metrics that know nothing of the cluster yet.
func New() *Metrics {
	return &Metrics{
		counted:           map[string]bool{},
		reaction:          reaction.histogram(),
		bootstrapDuration: bootstrapDuration.histogram(),
		taintOperations:   taintOperations.counter(),
		writeFailures:     writeFailures.counter(),
		bootstraps:        bootstraps.counter(),
		apiRequests:       apiRequests.counter(),
	}
}

// Show tells where the state of the cluster can be read from now on.
func (m *Metrics) Show(c Cluster) { m.cluster.Store(&c) }

// Reacted says how long a write took that adds or removes taints (Add, Remove), from the event that caused it.
func (m *Metrics) Reacted(operation string, took time.Duration) {
	m.reaction.WithLabelValues(operation).Observe(took.Seconds())
}

// Tainted says that a taint was added, removed or adopted on account of a rule, or of one that is gone: "".
func (m *Metrics) Tainted(rule, operation string) {
	m.count(rule)
	m.taintOperations.WithLabelValues(rule, operation).Inc()
}

// WriteFailed says that a node could not be written on account of a rule.
func (m *Metrics) WriteFailed(rule, reason string) {
	m.count(rule)
	m.writeFailures.WithLabelValues(rule, reason).Inc()
}

// Bootstrapped says that a node completed a bootstrap-only rule, so long after it was created; negative for a time that
// says nothing.
func (m *Metrics) Bootstrapped(rule string, after time.Duration) {
	m.count(rule)
	m.bootstraps.WithLabelValues(rule).Inc()
	if after >= 0 {
		m.bootstrapDuration.WithLabelValues(rule).Observe(after.Seconds())
	}
}

func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.reaction, m.bootstrapDuration, m.taintOperations, m.writeFailures, m.bootstraps, m.apiRequests}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range table {
		ch <- one.desc()
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	v := m.look()
	for _, vector := range m.vectors() {
		vector.Collect(ch)
	}
	for _, one := range table {
		if one.read == nil {
			continue
		}
		desc := one.desc()
		one.read(v, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, one.valueType(), value, labels...)
		})
	}
}

// look reads the state of the cluster, begins the series of new rules with 0, so that their first operation is an
// increase, and ends those of rules that are gone.
func (m *Metrics) look() view {
	c := m.cluster.Load()
	if c == nil || !c.Leading() {
		return view{}
	}
	before := m.names() // first: a rule counted from now on may be too new for the list
	v := view{leading: true, rules: c.Rules(), agents: c.Agents(), fleet: c.Fleet(), liveness: c.Liveness()}
	exist := make(map[string]bool, len(v.rules))
	for i := range v.rules {
		name := v.rules[i].Name
		exist[name] = true
		m.count(name)
		m.taintOperations.WithLabelValues(name, Add)
		m.taintOperations.WithLabelValues(name, Remove)
		if v.rules[i].Spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly {
			m.bootstraps.WithLabelValues(name)
		}
	}
	for _, name := range before {
		if !exist[name] {
			m.end(name)
		}
	}
	return v
}

// count notes that a rule may have series. What is counted for rules that are gone, "", stays.
func (m *Metrics) count(rule string) {
	if rule == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted[rule] = true
}

func (m *Metrics) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.counted))
}

func (m *Metrics) end(rule string) {
	m.mu.Lock()
	delete(m.counted, rule)
	m.mu.Unlock()
	series := prometheus.Labels{ruleLabel: rule}
	m.bootstrapDuration.DeletePartialMatch(series)
	for _, vector := range []*prometheus.CounterVec{m.taintOperations, m.writeFailures, m.bootstraps} {
		vector.DeletePartialMatch(series)
	}
}
