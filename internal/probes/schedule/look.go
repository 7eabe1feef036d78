package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

// Check is what the scheduler needs to know of a check.
type Check struct {
	Name  string
	Probe probes.Probe
	// Definition tells what Probe was made of, in one word: a hash of its options, say. To Replace, a check that comes with
	// the same name and definition is the same check, and its first Probe stays in use; one without a definition never is.
	Definition string
	// Interval from look to look, Timeout of one look.
	Interval, Timeout time.Duration
}

// Outcome is what one look of one check came to.
type Outcome struct {
	Name string
	health.Result
}

// Once looks at every check once, all at the same time, and returns the outcomes in the order of the checks. It takes no
// longer than the longest timeout and a bit: a look that hangs is left behind and reported as CheckTimedOut.
func Once(ctx context.Context, checks []Check, log *slog.Logger) []Outcome {
	outcomes := make([]Outcome, len(checks))
	var pass sync.WaitGroup
	for i, c := range checks {
		pass.Go(func() {
			outcomes[i] = Outcome{Name: c.Name, Result: c.lookOnce(ctx, log)}
		})
	}
	pass.Wait()
	return outcomes
}

func (c Check) lookOnce(ctx context.Context, log *slog.Logger) health.Result {
	ended := make(chan health.Result, 1)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	go func() { ended <- c.look(ctx, log) }()
	hung := time.NewTimer(c.patience())
	defer hung.Stop()
	select {
	case r := <-ended:
		return r
	case <-hung.C:
		return c.timedOut()
	}
}

// patience is how long a look may take before it counts as hung: its timeout, and a bit for the probe to notice that
// the timeout has passed and to say what that means.
func (c Check) patience() time.Duration {
	return c.Timeout + min(max(c.Timeout/10, 100*time.Millisecond), time.Second)
}

func (c Check) timedOut() health.Result {
	return health.Result{Verdict: health.Unknown, Reason: health.ReasonTimeout, Message: fmt.Sprintf("no result within %s", c.Timeout)}
}

// look runs the probe. A panic is an Unknown result; its stack goes to the log.
func (c Check) look(ctx context.Context, log *slog.Logger) (r health.Result) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("check panicked", "check", c.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r = health.Result{Verdict: health.Unknown, Reason: health.ReasonPanicked, Message: "the check ended in a programming error; the agent's log has its stack"}
		}
	}()
	return c.Probe.Run(ctx)
}
