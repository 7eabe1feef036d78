package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

// diagnosis folds looks into the health engine, says what changed in the log, and passes reports on. The scheduler's
// one goroutine calls it.
type diagnosis struct {
	engine *health.Engine
	log    *slog.Logger
	tell   func(health.Report)

	last health.Report
}

// begin tells the first report, which is all there is when no check is configured.
func (d *diagnosis) begin() {
	d.last = d.engine.Report()
	d.tell(d.last)
}

// startOver is told that the agent did not run for a while: what was found before says nothing of the machine now.
func (d *diagnosis) startOver() {
	d.engine.StartOver(time.Now())
	d.begin()
}

func (d *diagnosis) observe(name string, r health.Result, at time.Time) (unsettled bool) {
	if d.engine.Observe(name, r, at) {
		now := d.engine.Report()
		d.logChanges(now)
		d.last = now
		d.tell(now)
	}
	return d.engine.Unsettled(name)
}

func (d *diagnosis) logChanges(now health.Report) {
	for i, s := range now.Checks {
		if was := d.last.Checks[i]; was.Verdict == s.Verdict && was.Reason == s.Reason {
			continue
		}
		level := slog.LevelInfo
		if s.Verdict != health.OK && s.Verdict != health.NotApplicable && s.Reason != health.ReasonPending {
			level = slog.LevelWarn
		}
		d.log.Log(context.Background(), level, "check changed", "check", s.Name, "verdict", string(s.Verdict), "reason", s.Reason, "detail", s.Message)
	}
}
