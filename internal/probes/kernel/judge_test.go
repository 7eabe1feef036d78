package kernel

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
)

func TestFill(t *testing.T) {
	b := bounds{low: 80, exhausted: 95}
	for _, tc := range []struct {
		name   string
		bounds bounds
		prev   level
		fill   fill
		want   level
	}{
		{name: "just below", bounds: b, fill: fill{799, 1000}, want: roomy},
		{name: "at the bound", bounds: b, fill: fill{800, 1000}, want: low},
		{name: "just below the worse one", bounds: b, fill: fill{949, 1000}, want: low},
		{name: "at the worse one", bounds: b, fill: fill{950, 1000}, want: exhausted},
		{name: "beyond the limit", bounds: b, fill: fill{1100, 1000}, want: exhausted},
		{name: "no limit", bounds: b, fill: fill{1100, 0}, want: roomy},
		{name: "nothing of nothing", bounds: b, want: roomy},
		{name: "an absurd limit", bounds: b, fill: fill{1e6, math.MaxUint64}, want: roomy},
		{name: "all of an absurd limit", bounds: b, fill: fill{math.MaxUint64, math.MaxUint64}, want: exhausted},
		{name: "a limit of one", bounds: b, fill: fill{1, 1}, want: exhausted},
		{name: "within the margin it stays", bounds: b, prev: low, fill: fill{770, 1000}, want: low},
		{name: "below the margin it clears", bounds: b, prev: low, fill: fill{769, 1000}, want: roomy},
		{name: "within the worse one's margin it stays worse", bounds: b, prev: exhausted, fill: fill{920, 1000}, want: exhausted},
		{name: "below the worse one's margin it is low", bounds: b, prev: exhausted, fill: fill{919, 1000}, want: low},
		{name: "from the worst at once to well", bounds: b, prev: exhausted, fill: fill{100, 1000}, want: roomy},
		{name: "the worst leaves a margin for the milder one too", bounds: b, prev: exhausted, fill: fill{780, 1000}, want: low},
		{name: "both off", fill: fill{1000, 1000}, want: roomy},
		{name: "the milder one off", bounds: bounds{exhausted: 95}, fill: fill{949, 1000}, want: roomy},
		{name: "the worse one off", bounds: bounds{low: 80}, fill: fill{1000, 1000}, want: low},
		{name: "a small bound clears too", bounds: bounds{low: 2}, prev: low, fill: fill{9, 1000}, want: roomy},
		{name: "and has a margin", bounds: bounds{low: 2}, prev: low, fill: fill{10, 1000}, want: low},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.bounds.judge(tc.prev, tc.fill); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func expect(t *testing.T, got health.Result, verdict health.Verdict, reason, message string) {
	t.Helper()
	if want := (health.Result{Verdict: verdict, Reason: reason, Message: message}); got != want || got.Message != health.Normalise(got.Message) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func machine(t *testing.T, dir string) *hostfs.Root {
	t.Helper()
	root, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestJudgeProcessIDs(t *testing.T) {
	const ok = "processes and threads can be started"
	host, pods := func(n uint64) taken { return taken{fill{n, 1000}, "kernel.pid_max"} }, func(n, of uint64) taken {
		return taken{fill{n, of}, "pids.max of the control group kubepods.slice"}
	}
	l := &processIDsLook{ProcessIDsOptions: *ProcessIDs.NewOptions().(*ProcessIDsOptions), levels: map[string]level{}}
	for _, step := range []struct {
		all     []taken
		verdict health.Verdict
		reason  string
		message string
	}{
		{[]taken{host(100), pods(0, 0)}, health.OK, "OK", ok},
		{[]taken{host(100), pods(80, 100)}, health.Degraded, ProcessIDsLow, "80% or more of pids.max of the control group kubepods.slice in use"},
		{[]taken{host(800), pods(90, 100)}, health.Degraded, ProcessIDsLow, "80% or more of kernel.pid_max and of pids.max of the control group kubepods.slice in use"},
		{[]taken{host(800), pods(95, 100)}, health.Fatal, ProcessIDsExhausted, "95% or more of pids.max of the control group kubepods.slice in use"},
		{[]taken{host(780), pods(92, 100)}, health.Fatal, ProcessIDsExhausted, "95% or more of pids.max of the control group kubepods.slice in use"}, // within both margins
		{[]taken{host(780), pods(10, 100)}, health.Degraded, ProcessIDsLow, "80% or more of kernel.pid_max in use"},
		{[]taken{host(769)}, health.OK, "OK", ok},
	} {
		expect(t, l.judge(step.all), step.verdict, step.reason, step.message)
	}
}

func TestJudgeFileHandles(t *testing.T) {
	l := &fileHandlesLook{FileHandlesOptions: *FileHandles.NewOptions().(*FileHandlesOptions)}
	expect(t, l.judge(fill{79, 100}), health.OK, "OK", "files and sockets can be opened")
	expect(t, l.judge(fill{80, 100}), health.Degraded, FileHandlesLow, "80% or more of fs.file-max in use")
	expect(t, l.judge(fill{95, 100}), health.Fatal, FileHandlesExhausted, "95% or more of fs.file-max in use")
	expect(t, l.judge(fill{92, 100}), health.Fatal, FileHandlesExhausted, "95% or more of fs.file-max in use")
	expect(t, l.judge(fill{91, 100}), health.Degraded, FileHandlesLow, "80% or more of fs.file-max in use")
	expect(t, l.judge(fill{76, 100}), health.OK, "OK", "files and sockets can be opened")
}

func TestHandlesFrom(t *testing.T) {
	for text, want := range map[string]fill{
		"629\t0\t2466177":              {629, 2466177},
		"1344\t0\t9223372036854775807": {1344, math.MaxInt64}, // what systemd sets
		"300\t100\t1000":               {200, 1000},           // as kernels before 2.6 counted
		"1\t2\t3":                      {0, 3},
	} {
		if got, err := handlesFrom(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1 2", "1 2 3 4", "1 2 x", "-1 0 5", "1 0 18446744073709551616"} {
		if got, err := handlesFrom(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestThreadsFrom(t *testing.T) {
	if n, err := threadsFrom("0.14 0.37 0.63 2/106 9301"); err != nil || n != 106 {
		t.Errorf("%d, %v", n, err)
	}
	for _, line := range []string{"", "0.14 0.37 0.63 2/106", "0.14 0.37 0.63 106 9301", "0.14 0.37 0.63 2/x 9301", "0.14 0.37 0.63 2/-1 9301"} {
		if n, err := threadsFrom(line); err == nil {
			t.Errorf("%q: %d", line, n)
		}
	}
}

func TestJudgeConntrack(t *testing.T) {
	const ok = "connections can be tracked"
	l := &conntrackLook{ConntrackOptions: *Conntrack.NewOptions().(*ConntrackOptions)}
	for _, step := range []struct {
		used, limit uint64
		drops       float64
		verdict     health.Verdict
		reason      string
		message     string
	}{
		{0, 0, 0, health.OK, "OK", ok},
		{5000, 0, 0, health.OK, "OK", ok}, // no limit
		{799, 1000, 59.9, health.OK, "OK", ok},
		{799, 1000, 60, health.Degraded, ConntrackDropping, "60 packets a minute or more are dropped"},
		{800, 1000, 0, health.Degraded, ConntrackLow, "80% or more of nf_conntrack_max in use"},
		{800, 1000, 600, health.Degraded, ConntrackDropping, "60 packets a minute or more are dropped"},
		{950, 1000, 600, health.Fatal, ConntrackExhausted, "95% or more of nf_conntrack_max in use"},
		{920, 1000, 0, health.Fatal, ConntrackExhausted, "95% or more of nf_conntrack_max in use"},
		{919, 1000, 0, health.Degraded, ConntrackLow, "80% or more of nf_conntrack_max in use"},
		{769, 1000, 0, health.OK, "OK", ok},
	} {
		expect(t, l.judge(fill{step.used, step.limit}, step.drops), step.verdict, step.reason, step.message)
	}
	off := &conntrackLook{}
	expect(t, off.judge(fill{1000, 1000}, 1e9), health.OK, "OK", ok)
}

func TestDropsPerMinute(t *testing.T) {
	at := func(seconds int, counts ...dropped) drops {
		return drops{at: time.Unix(1000, 0).Add(time.Duration(seconds) * time.Second), counts: counts}
	}
	for _, tc := range []struct {
		name        string
		before, now drops
		want        float64
	}{
		{name: "the first look has nothing to compare with", now: at(30, dropped{full: 500}), want: 0},
		{name: "what was there before does not count", before: at(0, dropped{full: 500}), now: at(30, dropped{full: 500}), want: 0},
		{name: "all processors together", before: at(0, dropped{full: 5}, dropped{full: 7}), now: at(30, dropped{full: 15}, dropped{full: 27}), want: 60},
		{name: "counted in both columns", before: at(0, dropped{}), now: at(60, dropped{full: 40, failed: 50}), want: 50},
		{name: "over a longer time", before: at(0, dropped{}), now: at(600, dropped{failed: 50}), want: 5},
		{name: "a counter that wrapped around", before: at(0, dropped{full: math.MaxUint32 - 9}), now: at(60, dropped{full: 10}), want: 20},
		{name: "a module that was loaded anew", before: at(0, dropped{full: 4000}), now: at(60, dropped{full: 3}), want: 0},
		{name: "another number of processors", before: at(0, dropped{}), now: at(60, dropped{full: 100}, dropped{full: 100}), want: 0},
		{name: "no time between", before: at(0, dropped{}), now: at(0, dropped{full: 100}), want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.now.since(tc.before); got != tc.want {
				t.Errorf("got %g, want %g", got, tc.want)
			}
		})
	}
}

func TestJudgeClock(t *testing.T) {
	container, bare := t.TempDir(), t.TempDir()
	write(t, container, containerPath, "systemd-nspawn")
	for _, tc := range []struct {
		name    string
		dir     string
		off     time.Duration
		err     error
		verdict health.Verdict
		reason  string
		message string
	}{
		{name: "in step", dir: bare, off: 1500 * time.Microsecond, verdict: health.OK, reason: "OK", message: "the clock is in step, within 5s"},
		{name: "at the bound", dir: bare, off: 5 * time.Second, verdict: health.OK, reason: "OK", message: "the clock is in step, within 5s"},
		{name: "beyond it", dir: bare, off: 5*time.Second + time.Microsecond, verdict: health.Degraded, reason: ClockErrorLarge, message: "the clock may be off by more than 5s"},
		{name: "just below what the kernel gives up at", dir: bare, off: 16*time.Second - time.Microsecond, verdict: health.Degraded, reason: ClockErrorLarge, message: "the clock may be off by more than 5s"},
		{name: "never set", dir: bare, off: 16 * time.Second, verdict: health.Degraded, reason: ClockUnsynchronised, message: "no time service has set the clock right"},
		{name: "not allowed to ask", dir: bare, err: unix.EPERM, verdict: health.Unknown, reason: ClockUnreadable, message: "adjtimex is not allowed: operation not permitted"},
		{name: "not allowed to ask in a container", dir: container, err: unix.EPERM, verdict: health.NotApplicable, reason: "NotApplicable", message: "the machine is a container, whose clock is its host's"},
		{name: "allowed to ask in a container", dir: container, off: 16 * time.Second, verdict: health.Degraded, reason: ClockUnsynchronised, message: "no time service has set the clock right"},
		{name: "no such call", dir: bare, err: unix.ENOSYS, verdict: health.Unknown, reason: ClockUnreadable, message: "adjtimex is not allowed: function not implemented"},
		{name: "another error", dir: container, err: unix.EFAULT, verdict: health.Unknown, reason: ClockUnreadable, message: "adjtimex: bad address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := clockLook{host: machine(t, tc.dir), ClockOptions: *Clock.NewOptions().(*ClockOptions), maxError: func() (time.Duration, error) { return tc.off, tc.err }}
			expect(t, l.Run(t.Context()), tc.verdict, tc.reason, tc.message)
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	type validator interface {
		Validate(func(what, allowed string, keys ...string))
	}
	order := []string{"fatalPercent", "degradedPercent"}
	for _, tc := range []struct {
		options validator
		want    [][]string // keys of each fault
	}{
		{ProcessIDsOptions{DegradedPercent: 80, FatalPercent: 80}, nil},
		{ProcessIDsOptions{DegradedPercent: 80, FatalPercent: 79}, [][]string{order}},
		{ProcessIDsOptions{DegradedPercent: 80}, nil},
		{ProcessIDsOptions{Cgroups: []string{"kubepods.slice", "a/b"}}, nil},
		{ProcessIDsOptions{Cgroups: []string{"", "/a", "a/", "../a", "a/../b", "."}}, [][]string{{"cgroups[0]"}, {"cgroups[1]"}, {"cgroups[2]"}, {"cgroups[3]"}, {"cgroups[4]"}, {"cgroups[5]"}}},
		{FileHandlesOptions{DegradedPercent: 2, FatalPercent: 1}, [][]string{order}},
		{ConntrackOptions{DegradedPercent: 2, FatalPercent: 1}, [][]string{order}},
		{ConntrackOptions{FatalPercent: 1}, nil},
	} {
		var got [][]string
		tc.options.Validate(func(_, _ string, keys ...string) { got = append(got, keys) })
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.options, got, tc.want)
		}
	}
}

func TestErrorsAreToldFromWhatIsMissing(t *testing.T) {
	if _, err := parse("/proc/x", "1e3"); err == nil || errors.Is(err, unix.ENOENT) || fmt.Sprint(err) != `/proc/x: "1e3" is not a number` {
		t.Error(err)
	}
}
