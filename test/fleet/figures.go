package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Figures are the agents' writes by kind: "conditions", "lease", "host".
type Figures map[string]Series

// Series are the writes of one kind. Percentiles are of those that succeeded.
type Series struct {
	Count, Failed int
	P50, P99, Max time.Duration
	LastFailure   error
}

// String is a table.
func (f Figures) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-12s %8s %8s %10s %10s %10s\n", "WRITES", "COUNT", "FAILED", "P50", "P99", "MAX")
	for _, kind := range slices.Sorted(maps.Keys(f)) {
		s := f[kind]
		fmt.Fprintf(&out, "%-12s %8d %8d %10v %10v %10v\n", kind, s.Count, s.Failed, rounded(s.P50), rounded(s.P99), rounded(s.Max))
	}
	return out.String()
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

type recorder struct {
	mu     sync.Mutex
	series map[string]*samples
}

type samples struct {
	took   []time.Duration
	failed int
	last   error
}

// measure records how long a write took or that it failed. One that is cut off by the end of ctx is not recorded.
func (r *recorder) measure(ctx context.Context, kind string, write func() error) error {
	began := time.Now()
	err := write()
	took := time.Since(began)
	if ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.series == nil {
		r.series = map[string]*samples{}
	}
	s := r.series[kind]
	if s == nil {
		s = &samples{}
		r.series[kind] = s
	}
	if err != nil {
		s.failed++
		s.last = err
		return err
	}
	s.took = append(s.took, took)
	return nil
}

func (r *recorder) figures() Figures {
	r.mu.Lock()
	defer r.mu.Unlock()
	figures := Figures{}
	for kind, s := range r.series {
		took := slices.Sorted(slices.Values(s.took))
		series := Series{Count: len(took), Failed: s.failed, LastFailure: s.last}
		if len(took) > 0 {
			series.P50, series.P99, series.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
		}
		figures[kind] = series
	}
	return figures
}
