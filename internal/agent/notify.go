package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fettle-dev/fettle/internal/health"
)

const (
	// noticeEvery is how often the service manager's view is brought up to date, and the watchdog considered.
	noticeEvery = time.Second
	// readyAtLatest : an agent whose checks take longer to be decided than this is up all the same.
	readyAtLatest = 30 * time.Second
)

// notifier tells the service manager how the agent does: READY=1 once the machine's first report is decided, STATUS= in
// one line, WATCHDOG=1 while the scheduler makes progress. Without a service manager it does nothing.
type notifier struct {
	progress   func() uint64
	publishing func() string

	mu     sync.Mutex
	report health.Report
}

func newNotifier(progress func() uint64, publishing func() string) *notifier {
	return &notifier{progress: progress, publishing: publishing}
}

func (n *notifier) say(r health.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.report = r
}

func (n *notifier) latest() health.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.report
}

func (n *notifier) run(ctx context.Context) {
	if told, _ := daemon.SdNotify(false, "STATUS=starting"); !told {
		return
	}
	patience, _ := daemon.SdWatchdogEnabled(false) // what is wrong with the variable is the service manager's to say
	var (
		started  = time.Now()
		ready    bool
		said     string
		progress = n.progress()
		fed      = started
	)
	for pause(ctx, noticeEvery) {
		var lines []string
		report := n.latest()
		if !ready && (report.Decided || time.Since(started) > readyAtLatest) {
			ready = true
			lines = append(lines, daemon.SdNotifyReady)
		}
		if line := statusLine(report, n.publishing()); line != said {
			said = line
			lines = append(lines, "STATUS="+line)
		}
		if now := n.progress(); patience > 0 && now != progress && time.Since(fed) >= patience/4 {
			progress, fed = now, time.Now()
			lines = append(lines, daemon.SdNotifyWatchdog)
		}
		if len(lines) > 0 {
			_, _ = daemon.SdNotify(false, strings.Join(lines, "\n")) // lost ones are made up for by the next
		}
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
}

// statusLine says how the machine is and how publishing stands, e.g. "healthy: 3 ok; published".
func statusLine(r health.Report, publishing string) string {
	if !r.Decided {
		return "checks are not decided yet; " + publishing
	}
	word := map[health.Verdict]string{
		health.OK: "healthy", health.Degraded: "degraded", health.Fatal: "unhealthy",
		health.Unknown: "unknown", health.NotApplicable: "nothing to check",
	}[r.Summary.Verdict]
	if r.Summary.Reason != "" {
		word += " (" + r.Summary.Reason + ")"
	}
	var counts []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{r.Counts.Fatal, "fatal"}, {r.Counts.Unknown, "unknown"}, {r.Counts.Degraded, "degraded"},
		{r.Counts.OK, "ok"}, {r.Counts.NotApplicable, "not applicable"},
	} {
		if c.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(counts) > 0 {
		word += ": " + strings.Join(counts, ", ")
	}
	return word + "; " + publishing
}
