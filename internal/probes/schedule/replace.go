package schedule

import (
	"context"
	"sync"
	"time"
)

// errands are what other goroutines want done on that of Run.
type errands struct {
	mu   sync.Mutex
	todo []func(ctx context.Context)
}

// Do has f called on the goroutine that calls Observe, after the Observe that runs and before the next. It does not wait
// for that, and may be called from any goroutine, from Observe too. Once Run has ended, f is not called.
func (s *Scheduler) Do(f func()) { s.do(func(context.Context) { f() }) }

func (s *Scheduler) do(f func(ctx context.Context)) {
	s.errands.mu.Lock()
	s.errands.todo = append(s.errands.todo, f)
	s.errands.mu.Unlock()
	s.nudge()
}

func (s *Scheduler) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// runErrands does what there is to do now; what that asks for in turn is done in the next turn.
func (s *Scheduler) runErrands(ctx context.Context) {
	s.errands.mu.Lock()
	todo := s.errands.todo
	s.errands.todo = nil
	s.errands.mu.Unlock()
	for _, f := range todo {
		f(ctx)
	}
}

// Replace changes the checks that are looked at; then, if there is one, is called when they have been, before any
// further Observe and on the same goroutine. It does not wait for that, and may be called from any goroutine while Run
// runs or before.
//
// A check that keeps its name and definition keeps its probe, its place in the schedule and a look that runs or hangs;
// a new interval or timeout holds from its next look on. Of any other the look that runs is told to end and its result
// dropped, and its watch ends. A new check of the same name is not looked at before that look has returned.
func (s *Scheduler) Replace(checks []Check, then func()) {
	s.do(func(ctx context.Context) {
		s.replace(ctx, checks)
		if then != nil {
			then()
		}
	})
}

func (s *Scheduler) replace(ctx context.Context, checks []Check) {
	now := time.Now()
	old := make(map[string]*plan, len(s.plans))
	for _, p := range s.plans {
		old[p.Name] = p
	}
	s.plans = make([]*plan, 0, len(checks))
	for _, c := range checks {
		p, ok := old[c.Name]
		if ok && c.Definition != "" && p.Definition == c.Definition {
			delete(old, c.Name)
			p.reschedule(c, s.seed, now)
			s.plans = append(s.plans, p)
			continue
		}
		p = s.newPlan(c)
		s.begin(ctx, p, now)
		s.plans = append(s.plans, p)
	}
	for _, p := range old {
		s.leave(p)
	}
}

// reschedule takes over what of a check may change while it stays the same.
func (p *plan) reschedule(c Check, seed string, now time.Time) {
	again := c.Interval != p.Interval
	p.Interval, p.Timeout = c.Interval, c.Timeout
	if again {
		p.rephase(seed, now)
	}
}

// Reseed changes what tells this machine apart, once something better is known; see New. No look comes later than it was
// due. It does not wait, and may be called from any goroutine.
func (s *Scheduler) Reseed(seed string) {
	s.do(func(context.Context) {
		if seed == s.seed {
			return
		}
		s.seed = seed
		now := time.Now()
		for _, p := range s.plans {
			p.rephase(seed, now)
		}
	})
}

// rephase puts a check on the grid of a seed and of its interval.
func (p *plan) rephase(seed string, now time.Time) {
	p.phase = spread(seed+"/phase/"+p.Name, p.Interval)
	due := p.due
	p.plan(now, false)
	p.due = earlier(p.due, due) // what was due sooner, as an early look, is
}

// leave takes a check off the schedule.
func (s *Scheduler) leave(p *plan) {
	p.gone = true
	if p.unwatch != nil {
		p.unwatch()
	}
	if p.running {
		p.cancel()
		s.leaving[p.Name] = p
	}
}

func (s *Scheduler) find(name string) *plan {
	for _, p := range s.plans {
		if p.Name == name {
			return p
		}
	}
	return nil
}
