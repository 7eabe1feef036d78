package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
)

const (
	// noticeEvery is how often the service manager's view is brought up to date, and the watchdog considered.
	noticeEvery = time.Second
	// readyAtLatest : an agent whose checks take longer to be decided than this is up all the same.
	readyAtLatest = 30 * time.Second
)

// startExtension is how much longer a start may take, counted from when it was last seen to make progress.
const startExtension = 15 * time.Second

// notifier tells the service manager how the agent does: READY=1 once the machine's first report is decided, STATUS= in
// one line, WATCHDOG=1 while the scheduler makes progress, RELOADING=1 while a configuration is taken. Without a service
// manager it does nothing.
type notifier struct {
	progress   func() uint64
	publishing func() string

	mu     sync.Mutex
	report health.Report
	ready  bool
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
		said     string
		progress = n.progress()
		fed      = started
	)
	for pause(ctx, noticeEvery) {
		var lines []string
		report := n.latest()
		now := n.progress()
		switch {
		case n.isReady():
		case report.Decided || time.Since(started) > readyAtLatest:
			n.setReady()
			lines = append(lines, daemon.SdNotifyReady)
		case now != progress:
			lines = append(lines, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
		}
		if line := statusLine(report, n.publishing()); line != said {
			said = line
			lines = append(lines, "STATUS="+line)
		}
		if patience > 0 && now != progress && time.Since(fed) >= patience/4 {
			progress, fed = now, time.Now()
			lines = append(lines, daemon.SdNotifyWatchdog)
		}
		if len(lines) > 0 {
			_, _ = daemon.SdNotify(false, strings.Join(lines, "\n")) // lost ones are made up for by the next
		}
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
}

func (n *notifier) isReady() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

func (n *notifier) setReady() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = true
}

// reloading tells that another configuration is being taken, and reloaded that it was, or was refused: either way the
// agent goes on. While the agent is not up yet they say nothing; its start says it all.
func (n *notifier) reloading() {
	if !n.isReady() {
		return
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return // no kernel that runs Go lacks this clock
	}
	_, _ = daemon.SdNotify(false, fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
}

func (n *notifier) reloaded() {
	if n.isReady() {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
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
