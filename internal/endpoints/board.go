package endpoints

import (
	"slices"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

// verdicts in the order in which they are shown.
var verdicts = []health.Verdict{health.OK, health.Degraded, health.Fatal, health.Unknown, health.NotApplicable}

// lookBounds are the upper bounds of the histogram of looks, in seconds. A look reads files or asks somebody, and its
// deadline is some seconds.
var lookBounds = [...]float64{0.001, 0.01, 0.1, 1, 5, 30}

// Board holds what is known of the machine's health. Its methods may be called from any goroutine and do not block.
type Board struct {
	changed chan struct{} // holds one when something is new since the status file's writer looked

	mu     sync.Mutex
	report health.Report
	// conditions are the types that checks feed, by the check's name.
	conditions map[string]string
	tallies    map[string]*tally
}

// tally is what was counted of one check since the process started.
type tally struct {
	looks       map[health.Verdict]uint64
	last        time.Time
	took        time.Duration // of the last look
	spent       time.Duration // by all looks
	within      [len(lookBounds)]uint64
	transitions uint64
	verdict     health.Verdict // as last reported; empty before
}

// NewBoard makes an empty one.
func NewBoard() *Board {
	return &Board{changed: make(chan struct{}, 1), conditions: map[string]string{}, tallies: map[string]*tally{}}
}

// Configured tells which checks there are from now on. What was counted of others is dropped.
func (b *Board) Configured(checks []health.Check) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tallies := map[string]*tally{}
	b.conditions = map[string]string{}
	for _, c := range checks {
		b.conditions[c.Name] = c.Condition
		if tallies[c.Name] = b.tallies[c.Name]; tallies[c.Name] == nil {
			tallies[c.Name] = &tally{looks: map[health.Verdict]uint64{}}
		}
	}
	b.tallies = tallies
	b.Changed()
}

// Say hands over a report; the latest counts.
func (b *Board) Say(r health.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range r.Checks {
		t := b.tallies[s.Name]
		if t == nil {
			continue
		}
		if t.verdict != "" && t.verdict != s.Verdict {
			t.transitions++
		}
		t.verdict = s.Verdict
	}
	b.report = r
	b.Changed()
}

// Looked tells what one look came to, when it ended and how long it took. A check that is not configured is nobody's.
func (b *Board) Looked(check string, r health.Result, at time.Time, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[check]
	if t == nil {
		return
	}
	t.looks[r.Verdict]++
	t.last, t.took = at, took
	t.spent += took
	for i, bound := range lookBounds {
		if took.Seconds() <= bound {
			t.within[i]++
		}
	}
}

// Changed tells that there is something new to write into the status file, here or at the Source.
func (b *Board) Changed() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Health is what there is to say of the machine now.
func (b *Board) Health() Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.report
	h := Health{
		Decided: r.Decided, Status: statusWord(r), Reason: r.Summary.Reason, Since: moment(r.Summary.Since),
		Counts: Counts(r.Counts), Pending: slices.Clone(r.Pending),
		Conditions: make([]Condition, 0, len(r.Conditions)), Checks: make([]Check, 0, len(r.Checks)),
	}
	for _, c := range r.Conditions {
		h.Conditions = append(h.Conditions, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	for _, s := range r.Checks {
		c := Check{
			Name: s.Name, Condition: b.conditions[s.Name], Verdict: string(s.Verdict), Reason: s.Reason, Message: s.Message,
			Since: moment(s.Since), DryRun: s.DryRun,
		}
		if t := b.tallies[s.Name]; t != nil {
			c.LastLook, c.TookSeconds = moment(t.last), t.took.Round(time.Microsecond).Seconds()
		}
		h.Checks = append(h.Checks, c)
	}
	return h
}

// counted calls visit for each check, by name, while the board stands still.
func (b *Board) counted(visit func(check string, t *tally)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, len(b.tallies))
	for name := range b.tallies {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		visit(name, b.tallies[name])
	}
}

// moment is a time as it is shown.
func moment(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// statusWord is the machine in one word. Where nothing was looked at, nothing is known.
func statusWord(r health.Report) string {
	if len(r.Checks) == 0 {
		return "Unknown"
	}
	switch r.Summary.Verdict {
	case health.OK, health.NotApplicable:
		return "Healthy"
	case health.Degraded:
		return "Degraded"
	case health.Fatal:
		return "Unhealthy"
	default:
		return "Unknown"
	}
}
