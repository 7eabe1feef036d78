package agent

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
)

// serviceManager listens as systemd does, and gives the next notification that has a line with a prefix.
func serviceManager(t *testing.T) (next func(prefix string) string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(prefix string) string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			message := make([]byte, 4096)
			n, err := socket.Read(message)
			if err != nil {
				t.Fatalf("nothing says %s: %v", prefix, err)
			}
			for line := range strings.SplitSeq(string(message[:n]), "\n") {
				if strings.HasPrefix(line, prefix) {
					return string(message[:n])
				}
			}
		}
	}
}

func notifying(t *testing.T, progress func() uint64) (n *notifier, stop func()) {
	t.Helper()
	n = newNotifier(progress, func() string { return "published" })
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { n.run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); run.Wait() })
	t.Cleanup(stop)
	return n, stop
}

func TestTheServiceManagerIsTold(t *testing.T) {
	next := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(unix.Getpid()))
	var turns atomic.Uint64
	n, stop := notifying(t, func() uint64 { return turns.Add(1) })
	next("STATUS=starting")
	n.reloading() // says nothing: it is not up
	if got := next("EXTEND_TIMEOUT_USEC="); !strings.Contains(got, "EXTEND_TIMEOUT_USEC=15000000") || strings.Contains(got, "RELOADING") {
		t.Errorf("while it starts: %q", got)
	}
	n.say(health.Report{Decided: true, Summary: health.Summary{Verdict: health.OK}, Counts: health.Counts{OK: 1}})
	if got := next("READY=1"); !strings.Contains(got, "STATUS=healthy: 1 ok; published") {
		t.Errorf("once it is up: %q", got)
	}
	next("WATCHDOG=1")

	before := monotonic(t)
	n.reloading()
	got := next("RELOADING=1")
	var at int64
	if _, err := fmt.Sscanf(got, "RELOADING=1\nMONOTONIC_USEC=%d", &at); err != nil || at < before || at > monotonic(t) {
		t.Errorf("%q, between %d and %d: %v", got, before, monotonic(t), err)
	}
	n.reloaded()
	next("READY=1")
	stop()
	next("STOPPING=1")
}

// monotonic is the clock of MONOTONIC_USEC, in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

func TestTheWatchdogStarvesWithoutProgress(t *testing.T) {
	next := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(unix.Getpid()))
	var turns atomic.Uint64
	n, _ := notifying(t, turns.Load)
	n.say(health.Report{Decided: true})
	next("READY=1")
	// Each status that differs is told at the next look at progress; none of them may feed the watchdog.
	for i := range 3 {
		n.say(health.Report{Decided: true, Counts: health.Counts{OK: i + 1}})
		if got := next("STATUS="); strings.Contains(got, "WATCHDOG=1") {
			t.Errorf("fed: %q", got)
		}
	}
	turns.Add(1)
	next("WATCHDOG=1")
}
