package report

import (
	"slices"
	"sync"
	"time"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
)

// inbox takes what comes from other goroutines. Of each kind the latest counts; what one of them asked for is not lost.
type inbox struct {
	wake chan struct{}

	mu          sync.Mutex
	letters     letters
	said        *health.Report // as last handed over, to tell a change
	runtime     *Runtime       // likewise
	first, last time.Time      // of changes that are waiting to be written
}

// letters are what came in since the last look.
type letters struct {
	report   *health.Report
	runtime  *Runtime
	host     *fettlev1alpha1.Host
	hostSeen bool
	why      string
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) say(r health.Report, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said != nil && sameReport(*b.said, r) {
		return
	}
	first := b.said == nil || r.Decided && !b.said.Decided || retracts(*b.said, r)
	b.said, b.letters.report = &r, &r
	if first {
		b.first, b.last = time.Time{}, time.Time{}
		b.nudge()
		return
	}
	b.changed(false, now)
}

// retracts reports whether something that was decided no longer is, as after the agent did not run for a while. That waits
// for nothing, since what was said before says nothing any more.
func retracts(before, after health.Report) bool {
	return before.Decided && !after.Decided || slices.ContainsFunc(before.Conditions, func(c health.Condition) bool {
		return slices.Contains(after.Pending, c.Type)
	})
}

func (b *inbox) setRuntime(r Runtime, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runtime != nil && *b.runtime == r {
		return
	}
	b.changed(b.runtime == nil, now)
	b.runtime, b.letters.runtime = &r, &r
}

// changed notes a change that may wait for others, unless it is the first of its kind; the caller holds mu.
func (b *inbox) changed(first bool, now time.Time) {
	if first {
		now = now.Add(-quiet)
	}
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
	b.nudge()
}

func (b *inbox) hostSeen(host *fettlev1alpha1.Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters.host, b.letters.hostSeen = host, true
	b.nudge()
}

func (b *inbox) reapply(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters.why = why
	b.nudge()
}

func (b *inbox) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take hands out what is due at now, and says how long until the rest is; 0 when there is none.
func (b *inbox) take(now time.Time) (letters, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.letters
	if !b.first.IsZero() && out.why == "" {
		if wait := ripe(b.first, b.last).Sub(now); wait > 0 {
			out.report, out.runtime = nil, nil
			b.letters = letters{report: b.letters.report, runtime: b.letters.runtime}
			return out, wait
		}
	}
	b.letters, b.first, b.last = letters{}, time.Time{}, time.Time{}
	return out, 0
}

func sameReport(a, b health.Report) bool {
	return a.Decided == b.Decided && a.Counts == b.Counts && a.Summary == b.Summary &&
		slices.Equal(a.Conditions, b.Conditions) && slices.Equal(a.Pending, b.Pending) && slices.Equal(a.Checks, b.Checks)
}
