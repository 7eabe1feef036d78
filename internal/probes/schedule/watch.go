package schedule

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fettle-dev/fettle/internal/probes"
)

// askedApart is the shortest time from the beginning of a look to that of one that was asked for.
const askedApart = time.Second

// Soon asks for a look of a check before it is due: now, or once the look that runs has returned, but not sooner than a
// second after the last one began. Asking again before that look begins changes nothing. It does not wait, and may be
// called from any goroutine.
func (s *Scheduler) Soon(name string) {
	s.Do(func() {
		if p := s.find(name); p != nil {
			p.asked.Store(true)
		}
	})
}

// watch lets a probe that notices changes by itself ask for looks, until the check leaves or ctx ends.
func (s *Scheduler) watch(ctx context.Context, p *plan) {
	w, ok := p.Probe.(probes.Watcher)
	if !ok {
		return
	}
	ctx, p.unwatch = context.WithCancel(ctx)
	name := p.Name
	go func() {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("check panicked while it watched; its regular looks go on", "check", name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
		}()
		w.Watch(ctx, func() {
			if p.asked.CompareAndSwap(false, true) {
				s.nudge()
			}
		})
	}()
}
