package report

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

func TestNext(t *testing.T) {
	all := Facts{
		Lease: Held, Decided: true, NodeKnown: true, NodeRight: true, AgentRight: true,
		HostDecided: true, HostOurs: true, RuntimeKnown: true, HostRight: true,
	}
	but := func(change func(*Facts)) Facts {
		f := all
		change(&f)
		return f
	}
	for _, tc := range []struct {
		name string
		f    Facts
		want Step
	}{
		{name: "all is right", f: all, want: Rest},
		{name: "nothing is known at the start", f: Facts{}, want: Rest},
		{name: "nothing is written before something is decided", f: Facts{Lease: Held, HostOurs: true, RuntimeKnown: true}, want: Rest},
		{name: "nothing is written without the lease", f: Facts{Decided: true, HostOurs: true, RuntimeKnown: true}, want: Rest},
		{name: "a node in doubt is read first", f: but(func(f *Facts) { f.NodeKnown, f.NodeRight, f.HostRight = false, false, false }), want: ReadNode},
		{name: "also when it seemed right", f: but(func(f *Facts) { f.NodeKnown = false }), want: ReadNode},
		{name: "the node comes before the host", f: but(func(f *Facts) { f.NodeRight, f.HostRight = false, false }), want: ApplyNode},
		{name: "what is to be kept is read again before it is written", f: but(func(f *Facts) { f.NodeRight, f.Mixed = false, true }), want: ReadNode},
		{name: "and then written", f: but(func(f *Facts) { f.NodeRight, f.Mixed, f.NodeFresh = false, true, true }), want: ApplyNode},
		{name: "what is kept is no reason to read a node that is right", f: but(func(f *Facts) { f.Mixed = true }), want: Rest},
		{name: "leftovers go first, while they are known to be ours", f: but(func(f *Facts) { f.NodeRight, f.NodeFresh, f.Leftovers = false, true, true }), want: RemoveLeftovers},
		{name: "also from a node that is right otherwise", f: but(func(f *Facts) { f.NodeFresh, f.Leftovers = true, true }), want: RemoveLeftovers},
		{name: "but not by what was read before our last write", f: but(func(f *Facts) { f.Leftovers = true }), want: Rest},
		{name: "the host comes last", f: but(func(f *Facts) { f.HostRight = false }), want: ApplyHost},
		{name: "the host waits for all that is not decided", f: but(func(f *Facts) { f.HostRight, f.HostDecided = false, false }), want: Rest},
		{name: "a foreign host is left alone", f: but(func(f *Facts) { f.HostRight, f.HostOurs = false, false }), want: Rest},
		{name: "a host is not told of a runtime that nobody looked at", f: but(func(f *Facts) { f.HostRight, f.RuntimeKnown = false, false }), want: Rest},
		{name: "with an impaired lease nothing else is written", f: but(func(f *Facts) { f.Lease, f.NodeRight, f.HostRight = Impaired, false, false }), want: Rest},
		{name: "but a word of the agent, onto what stands there now", f: but(func(f *Facts) { f.Lease, f.AgentRight = Impaired, false }), want: ReadNode},
		{name: "and nothing else with it", f: but(func(f *Facts) { f.Lease, f.AgentRight, f.NodeFresh, f.Leftovers = Impaired, false, true, true }), want: ApplyAgent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Next(tc.f); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRipe(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, last time.Duration
		want        time.Duration
	}{
		{name: "a single change waits for others", want: time.Second},
		{name: "each further change is waited for anew", last: 3 * time.Second, want: 4 * time.Second},
		{name: "but not without end", first: 0, last: 9500 * time.Millisecond, want: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ripe(now.Add(tc.first), now.Add(tc.last)).Sub(now); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		name     string
		failures int
		asked    time.Duration
		chance   float64
		want     time.Duration
	}{
		{name: "starts at up to a second", failures: 1, chance: 1, want: time.Second},
		{name: "and at least half of it", failures: 1, chance: 0, want: 500 * time.Millisecond},
		{name: "doubles", failures: 4, chance: 1, want: 8 * time.Second},
		{name: "to half a minute", failures: 1000, chance: 1, want: 30 * time.Second},
		{name: "never below what the server asks", failures: 1, asked: 42 * time.Second, chance: 1, want: 42 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := backoff(tc.failures, tc.asked, tc.chance); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func reportOf(reason string) health.Report {
	r := wellReport(before)
	r.Summary.Reason = reason
	return r
}

func TestInbox(t *testing.T) {
	t.Run("the first report is not made to wait", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		if got, _ := b.take(now); got.report == nil {
			t.Error("nothing to take")
		}
	})
	t.Run("the same does not come through twice", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		b.take(now)
		b.say(reportOf("first"), now.Add(time.Minute))
		if got, wait := b.take(now.Add(time.Hour)); got.report != nil || wait != 0 {
			t.Errorf("took %+v, wait %s", got, wait)
		}
	})
	t.Run("what is decided in part waits for the rest, and the whole waits for nothing", func(t *testing.T) {
		b := newInbox()
		b.say(health.Report{}, now)
		b.take(now)
		part := reportOf("part")
		part.Decided = false
		b.say(part, now)
		if got, wait := b.take(now); got.report != nil || wait != quiet {
			t.Fatalf("took %+v, wait %s", got, wait)
		}
		b.say(reportOf("whole"), now)
		if got, _ := b.take(now); got.report == nil || got.report.Summary.Reason != "whole" {
			t.Errorf("took %+v", got)
		}
	})
	t.Run("a type that is pending no more is news", func(t *testing.T) {
		b := newInbox()
		first := reportOf("first")
		first.Pending = []string{"x"}
		b.say(first, now)
		b.take(now)
		b.say(reportOf("first"), now)
		if got, _ := b.take(now.Add(quiet)); got.report == nil {
			t.Error("nothing to take")
		}
	})
	t.Run("starting over is told at once, and the same report comes through after it", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		b.take(now)
		b.say(reportOf("second"), now.Add(time.Minute))
		b.say(health.Report{}, now.Add(time.Minute))
		if got, _ := b.take(now.Add(time.Minute)); got.report == nil || got.report.Decided {
			t.Fatalf("took %+v", got)
		}
		b.say(reportOf("first"), now.Add(time.Hour))
		if got, _ := b.take(now.Add(time.Hour)); got.report == nil || got.report.Summary.Reason != "first" {
			t.Errorf("took %+v", got)
		}
	})
	t.Run("so is one type that is looked at anew", func(t *testing.T) {
		b := newInbox()
		first := reportOf("first")
		first.Conditions, first.Pending = []health.Condition{{Type: "a"}, {Type: "b"}}, []string{"c"}
		first.Decided = false
		b.say(first, now)
		b.take(now)
		second := first
		second.Conditions, second.Pending = first.Conditions[:1], []string{"b", "c"}
		b.say(second, now.Add(time.Minute))
		if got, _ := b.take(now.Add(time.Minute)); got.report == nil {
			t.Error("nothing to take")
		}
	})
	t.Run("changes are collected until they rest, and the last counts", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		b.take(now)
		b.say(reportOf("second"), now.Add(time.Minute))
		b.say(reportOf("third"), now.Add(time.Minute+900*time.Millisecond))
		if got, wait := b.take(now.Add(time.Minute + time.Second)); got.report != nil || wait != 900*time.Millisecond {
			t.Fatalf("took %+v, wait %s", got, wait)
		}
		if got, _ := b.take(now.Add(time.Minute + 1900*time.Millisecond)); got.report == nil || got.report.Summary.Reason != "third" {
			t.Errorf("took %+v", got)
		}
	})
	t.Run("a host does not wait for a report, and the report is not lost", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		b.take(now)
		b.say(reportOf("second"), now.Add(time.Minute))
		b.hostSeen(nil)
		if got, _ := b.take(now.Add(time.Minute)); !got.hostSeen || got.report != nil {
			t.Fatalf("took %+v", got)
		}
		if got, _ := b.take(now.Add(time.Minute + time.Second)); got.report == nil || got.hostSeen {
			t.Errorf("took %+v", got)
		}
	})
	t.Run("applying again takes what is waiting along", func(t *testing.T) {
		b := newInbox()
		b.say(reportOf("first"), now)
		b.take(now)
		b.say(reportOf("second"), now.Add(time.Minute))
		b.reapply("because")
		if got, _ := b.take(now.Add(time.Minute)); got.why == "" || got.report == nil {
			t.Errorf("took %+v", got)
		}
	})
	t.Run("a sleeping reader is woken", func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			b := newInbox()
			go func() {
				time.Sleep(time.Second)
				b.reapply("because")
			}()
			<-b.wake
		})
	})
}

func TestAConflictThatIsOverIsNotPublished(t *testing.T) {
	conflict := health.Report{Decided: true, Conditions: []health.Condition{
		{Type: "fettle.dev/AgentReady", Status: health.StatusFalse, Reason: ReasonIdentityConflict},
	}}
	lease := Lost
	r := New(nil, Options{Lease: func() Lease { return lease }})
	next := func(after time.Duration) (Step, time.Duration) {
		f, wait := r.facts(now.Add(after))
		return Next(f), wait
	}
	r.report = conflict
	if step, _ := next(0); step != Rest {
		t.Errorf("during the conflict: %s", step)
	}
	lease = Held
	if step, wait := next(time.Hour); step != Rest || wait != decisionWait {
		t.Errorf("when the lease comes to be ours: %s, for %s", step, wait)
	}
	r.report = health.Report{Decided: true, Conditions: []health.Condition{{Type: "fettle.dev/AgentReady", Status: health.StatusTrue, Reason: health.ReasonOK}}}
	if step, _ := next(time.Hour + time.Millisecond); step != ReadNode {
		t.Errorf("when the check was looked at again: %s", step)
	}
	r.report = conflict
	next(2 * time.Hour)
	if step, _ := next(2*time.Hour + decisionWait); step != ReadNode {
		t.Errorf("where the check is held at what it was: %s", step)
	}
}
