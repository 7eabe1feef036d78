package watch

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// pass looks at all agents, judges the fleet, and has those silences confirmed that may be acted on.
func (w *Watch) pass(ctx context.Context, now time.Time) {
	policy := *w.policy.Load()
	report := fleet.Report{CanaryAge: w.canary.age(now)}
	seen := fleet.Observation{Sight: w.canary.sight(now)}
	var waiting, free []*agent
	asking := 0
	for _, a := range w.agents {
		if a.host == "" {
			continue
		}
		w.look(a, now)
		due := a.verdict.State.Quiet() && !a.acted
		switch {
		case w.away(a, now):
			report.Away++
		case a.absent():
			report.NeverReported++
			if due {
				free = append(free, a) // its node says nothing that could become wrong
			}
		case a.acted || a.known:
			report.Silent++
			if due {
				free = append(free, a) // the cluster was told
			}
		default:
			seen.Agents++
			if a.stale(now, w.Limits) {
				seen.Stale++
			}
			if due {
				waiting = append(waiting, a)
				if a.confirming {
					asking++
				}
			}
		}
	}
	seen.Waiting = len(waiting)

	before := w.state
	var forgive bool
	w.state, forgive = fleet.Assess(before, seen, now, policy)
	if forgive {
		w.forgive(now)
		waiting = nil
	}
	w.confirmOldest(ctx, waiting, w.state.Allowance-asking)
	if w.acts() {
		w.confirmOldest(ctx, free, len(free))
	}
	w.tell(before, report, seen, policy, now)
}

// acts reports whether any silence may be acted on.
func (w *Watch) acts() bool { return w.state.Verdict.Acts() && w.canary.proven() }

func (w *Watch) away(a *agent, now time.Time) bool {
	return w.Planned != nil && now.Before(w.Planned(a.node))
}

// forgive starts the timers of all agents anew whose silence was not acted on: while nothing could be made of it, anything may
// have happened to them.
func (w *Watch) forgive(now time.Time) {
	for _, a := range w.agents {
		if a.host != "" && !a.acted {
			a.history = liveness.Excuse(a.history, now)
			w.look(a, now)
		}
	}
}

// confirmOldest has at most n silences confirmed, those first that last longest.
func (w *Watch) confirmOldest(ctx context.Context, silent []*agent, n int) {
	if n <= 0 {
		return
	}
	slices.SortFunc(silent, func(a, b *agent) int {
		return cmp.Or(a.history.LastChange.Compare(b.history.LastChange), cmp.Compare(a.node, b.node))
	})
	for _, a := range silent {
		if a.confirming {
			continue
		}
		if n <= 0 {
			return
		}
		n--
		w.confirm(ctx, a)
	}
}

// act makes a confirmed silence known, if it may be acted on still.
func (w *Watch) act(a *agent, now time.Time) {
	switch {
	case !w.acts() || w.away(a, now):
		return
	case a.absent() || a.known:
	case w.state.Allowance > 0:
		w.state = w.state.Act(now)
	default:
		return
	}
	a.acted = true
	w.say(a, a.verdict, now)
}

// tell makes the verdict on the fleet known.
func (w *Watch) tell(before fleet.State, report fleet.Report, seen fleet.Observation, policy fleet.Policy, now time.Time) {
	s := w.state
	report.Verdict, report.Computed, report.Since, report.Reason, report.Message = s.Verdict, s.Computed, s.Since, s.Reason, s.Message
	report.Agents, report.Stale, report.Waiting, report.New = seen.Agents, seen.Stale, seen.Waiting, s.New()
	report.Policy = policy
	if policy.Override.InForce(now) {
		report.Override = policy.Override
	}
	w.mu.Lock()
	w.report = report
	if s.Computed == fleet.Blind && (s.Reason == fleet.ReasonAPIUnreachable || s.Reason == fleet.ReasonWatchStalled) {
		w.blind = now
	}
	w.mu.Unlock()
	if s.Verdict == before.Verdict || before.Verdict == "" && s.Verdict == fleet.Normal {
		return
	}
	w.Log.Info("the verdict on the fleet changed", "verdict", s.Verdict, "before", before.Verdict, "computed", s.Computed, "reason", s.Reason, "message", s.Message,
		"agents", seen.Agents, "stale", seen.Stale, "waiting", seen.Waiting, "silent", report.Silent, "away", report.Away)
	if s.Verdict.Acts() && !before.Verdict.Acts() { // what could not be written meanwhile
		for _, a := range w.agents {
			if a.acted {
				w.Changed(a.node)
			}
		}
	}
}

// Tally counts what a Watch has done since its process began.
type Tally struct {
	// Silences acted on, but for those that the cluster was told of already, and Recoveries of silent agents.
	Silences, Recoveries uint64
	// Confirmed, Refuted and Failed live reads of leases: the agent is silent, is not, or nobody can say.
	Confirmed, Refuted, Failed uint64
	// CanaryRenewals were stored, CanaryFailures were not.
	CanaryRenewals, CanaryFailures uint64
}

type tally struct {
	silences, recoveries, confirmed, refuted, failed, renewals, failures atomic.Uint64
}

func (t *tally) noteBeat(b beat) {
	if b.err == nil {
		t.renewals.Add(1)
	} else {
		t.failures.Add(1)
	}
}

// Tally returns what was counted so far.
func (w *Watch) Tally() Tally {
	t := &w.tally
	return Tally{
		Silences: t.silences.Load(), Recoveries: t.recoveries.Load(),
		Confirmed: t.confirmed.Load(), Refuted: t.refuted.Load(), Failed: t.failed.Load(),
		CanaryRenewals: t.renewals.Load(), CanaryFailures: t.failures.Load(),
	}
}
