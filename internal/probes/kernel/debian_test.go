package kernel

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/test/barekernel"
)

func TestMain(m *testing.M) { barekernel.Main(m) }

// What must not be done to the machine that tests run on is done to one of their own: its clock is set, its limits are
// lowered until they are reached.
func TestMachineWithoutAnythingElse(t *testing.T) {
	if !barekernel.Inside() {
		barekernel.Run(t)
		return
	}
	look := func(k probes.Kind) health.Result {
		return k.Build(probes.Env{Host: machine(t, "/")}, k.NewOptions()).Run(t.Context())
	}
	sysctl := func(path string, value uint64) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strconv.FormatUint(value, 10)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, look(Conntrack), health.NotApplicable, health.ReasonNotApplicable, "connections are not tracked: nf_conntrack is not loaded")

	expect(t, look(Clock), health.Degraded, ClockUnsynchronised, "no time service has set the clock right")
	serve := func(off time.Duration, status int32) { // what a time service does
		t.Helper()
		if _, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_MAXERROR | unix.ADJ_STATUS, Maxerror: off.Microseconds(), Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	serve(20*time.Millisecond, 0)
	expect(t, look(Clock), health.OK, health.ReasonOK, "the clock is in step, within 5s")
	serve(20*time.Millisecond, unix.STA_UNSYNC) // chrony without rtcsync
	expect(t, look(Clock), health.OK, health.ReasonOK, "the clock is in step, within 5s")
	serve(6*time.Second, 0)
	expect(t, look(Clock), health.Degraded, ClockErrorLarge, "the clock may be off by more than 5s")
	serve(20*time.Millisecond, 0)
	now := unix.NsecToTimeval(time.Now().UnixNano())
	if err := unix.Settimeofday(&now); err != nil { // by hand
		t.Fatal(err)
	}
	expect(t, look(Clock), health.Degraded, ClockUnsynchronised, "no time service has set the clock right")

	expect(t, look(ProcessIDs), health.OK, health.ReasonOK, "processes and threads can be started")
	machineHas, err := readThreads(proc{machine(t, "/")})
	if err != nil {
		t.Fatal(err)
	}
	if machineHas.used < 20 || machineHas.limit > 32768 {
		t.Errorf("the machine has %+v", machineHas)
	}
	// The kernel allows no smaller limits than 301 IDs; threads take the rest. They end with the machine.
	sysctl("/proc/sys/kernel/pid_max", 401)
	release := make(chan struct{})
	for machineHas.used < 401*86/100 {
		holdThread(release)
		if machineHas, err = readThreads(proc{machine(t, "/")}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, look(ProcessIDs), health.Degraded, ProcessIDsLow, "80% or more of kernel.pid_max in use")
	sysctl("/proc/sys/kernel/pid_max", 32768)
	close(release)

	expect(t, look(FileHandles), health.OK, health.ReasonOK, "files and sockets can be opened")
	for range 1000 { // of which the kernel's count may miss some tens
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	text, err := proc{machine(t, "/")}.read("sys/fs/file-nr")
	if err != nil {
		t.Fatal(err)
	}
	open, err := handlesFrom(text)
	if err != nil {
		t.Fatal(err)
	}
	sysctl("/proc/sys/fs/file-max", open.used*2/3)
	expect(t, look(FileHandles), health.Fatal, FileHandlesExhausted, "95% or more of fs.file-max in use")
}

// holdThread keeps a thread of its own until release.
func holdThread(release <-chan struct{}) {
	held := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(held)
		<-release
	}()
	<-held
}
