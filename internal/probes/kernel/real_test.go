package kernel

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
)

func write(t testing.TB, dir, path, text string) {
	t.Helper()
	file := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func kinds() []probes.Kind { return []probes.Kind{Clock, ProcessIDs, FileHandles, Conntrack} }

// The folders of testdata are what the named kernels showed.
func TestMachinesOfSeveralKernels(t *testing.T) {
	folders, err := filepath.Glob("testdata/*")
	if err != nil || len(folders) < 3 {
		t.Fatalf("%q, %v", folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			for _, k := range kinds()[1:] { // the clock is no file
				got := k.Build(probes.Env{Host: machine(t, folder)}, k.NewOptions()).Run(t.Context())
				want := health.OK
				if k.Name == "conntrack" && strings.HasSuffix(folder, "-no-conntrack") {
					want = health.NotApplicable
				}
				if got.Verdict != want {
					t.Errorf("%s: %+v", k.Name, got)
				}
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	for _, k := range kinds() {
		got := k.Build(probes.Env{Host: machine(t, "/")}, k.NewOptions()).Run(t.Context())
		if got.Verdict == health.Unknown || got.Message != health.Normalise(got.Message) {
			t.Errorf("%s: %+v", k.Name, got)
		}
	}
}

// In a container whose mount of the machine's root leaves /proc out, the kernel is asked through the container's own.
func TestMachineWhoseProcIsNotSeen(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds()[1:] {
		if got := k.Build(probes.Env{Host: machine(t, dir)}, k.NewOptions()).Run(t.Context()); got.Verdict == health.Unknown {
			t.Errorf("%s: %+v", k.Name, got)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for _, tc := range []struct {
		kind    probes.Kind
		path    string // the broken one
		reason  string
		message string
	}{
		{ProcessIDs, "proc/loadavg", ProcessIDsUnreadable, `/proc/loadavg: "nonsense" is not as it should be`},
		{ProcessIDs, "proc/sys/kernel/pid_max", ProcessIDsUnreadable, `/proc/sys/kernel/pid_max: "nonsense" is not a number`},
		{ProcessIDs, "proc/sys/kernel/threads-max", ProcessIDsUnreadable, `/proc/sys/kernel/threads-max: "nonsense" is not a number`},
		{ProcessIDs, "sys/fs/cgroup/kubepods.slice/pids.max", ProcessIDsUnreadable, `/sys/fs/cgroup/kubepods.slice/pids.max: "nonsense" is not a number`},
		{ProcessIDs, "sys/fs/cgroup/kubepods.slice/pids.current", ProcessIDsUnreadable, `/sys/fs/cgroup/kubepods.slice/pids.current: "nonsense" is not a number`},
		{FileHandles, "proc/sys/fs/file-nr", FileHandlesUnreadable, `/proc/sys/fs/file-nr: "nonsense" is not as it should be`},
		{Conntrack, "proc/sys/net/netfilter/nf_conntrack_count", ConntrackUnreadable, `/proc/sys/net/netfilter/nf_conntrack_count: "nonsense" is not a number`},
		{Conntrack, "proc/sys/net/netfilter/nf_conntrack_max", ConntrackUnreadable, `/proc/sys/net/netfilter/nf_conntrack_max: "nonsense" is not a number`},
	} {
		t.Run(tc.path, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range map[string]string{
				"proc/loadavg": "0.00 0.00 0.00 1/100 200", "proc/sys/kernel/pid_max": "32768", "proc/sys/kernel/threads-max": "30000", "proc/sys/fs/file-nr": "1 0 100",
				"sys/fs/cgroup/kubepods.slice/pids.max": "100", "sys/fs/cgroup/kubepods.slice/pids.current": "5",
				"proc/sys/net/netfilter/nf_conntrack_count": "1", "proc/sys/net/netfilter/nf_conntrack_max": "100",
			} {
				write(t, dir, path, text)
			}
			look := func() health.Result {
				return tc.kind.Build(probes.Env{Host: machine(t, dir)}, tc.kind.NewOptions()).Run(t.Context())
			}
			if got := look(); got.Verdict != health.OK {
				t.Fatalf("before: %+v", got)
			}
			write(t, dir, tc.path, "nonsense")
			expect(t, look(), health.Unknown, tc.reason, tc.message)
		})
	}
}

// The smaller limit binds, and those of control groups beside it, of either version.
func TestLimitsOfControlGroups(t *testing.T) {
	for _, hierarchy := range []string{"sys/fs/cgroup", "sys/fs/cgroup/pids"} {
		dir := t.TempDir()
		write(t, dir, "proc/loadavg", "0.00 0.00 0.00 1/100 200")
		write(t, dir, "proc/sys/kernel/pid_max", "4194304")
		write(t, dir, "proc/sys/kernel/threads-max", "1000")
		write(t, dir, hierarchy+"/kubepods/pids.current", "190")
		write(t, dir, hierarchy+"/kubepods/pids.max", "max")
		p := ProcessIDs.Build(probes.Env{Host: machine(t, dir)}, ProcessIDs.NewOptions())
		expect(t, p.Run(t.Context()), health.OK, "OK", "processes and threads can be started")
		write(t, dir, hierarchy+"/kubepods/pids.max", "200")
		expect(t, p.Run(t.Context()), health.Fatal, ProcessIDsExhausted, "95% or more of pids.max of the control group kubepods in use")
		write(t, dir, hierarchy+"/kubepods/pids.max", "2000")
		write(t, dir, "proc/loadavg", "0.00 0.00 0.00 1/800 200")
		expect(t, p.Run(t.Context()), health.Degraded, ProcessIDsLow, "80% or more of kernel.threads-max in use")
	}
}

// What was dropped before the first look does not count, what is dropped from then on does, until it is over.
func TestDroppedPackets(t *testing.T) {
	const head = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n"
	dir := t.TempDir()
	write(t, dir, "proc/loadavg", "0.00 0.00 0.00 1/100 200")
	write(t, dir, "proc/sys/net/netfilter/nf_conntrack_count", "1")
	write(t, dir, "proc/sys/net/netfilter/nf_conntrack_max", "100")
	p := Conntrack.Build(probes.Env{Host: machine(t, dir)}, Conntrack.NewOptions())
	for _, step := range []struct {
		drop    string // of the second of two processors, hexadecimal
		verdict health.Verdict
		reason  string
		message string
	}{
		{"0000ffff", health.OK, "OK", "connections can be tracked"},
		{"00ffffff", health.Degraded, ConntrackDropping, "60 packets a minute or more are dropped"},
		{"00ffffff", health.OK, "OK", "connections can be tracked"},
	} {
		row := "00000001  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 % 00000000 00000000  00000000 00000000 00000000 00000000"
		write(t, dir, "proc/net/stat/nf_conntrack", head+strings.Replace(row, "%", "00000000", 1)+"\n"+strings.Replace(row, "%", step.drop, 1))
		expect(t, p.Run(t.Context()), step.verdict, step.reason, step.message)
	}
	write(t, dir, "proc/net/stat/nf_conntrack", head+"nonsense")
	if got := p.Run(t.Context()); got.Verdict != health.Unknown || got.Reason != ConntrackUnreadable {
		t.Errorf("%+v", got)
	}
}

// Connections are made in a network namespace of the test's own until they are 2% of what the kernel allows.
func TestConnectionsFillTheTable(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread is in the namespace
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("a network namespace needs root: %v", err)
	}
	defer ns.Close()
	// The first of these calls loads what it needs.
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	own := proc{machine(t, "/")}
	limit, err := own.number("sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		t.Fatal(err)
	}
	o := Conntrack.NewOptions().(*ConntrackOptions)
	o.DegradedPercent, o.FatalPercent = 1, 2
	p := Conntrack.Build(probes.Env{Host: machine(t, "/")}, o)
	expect(t, p.Run(t.Context()), health.OK, "OK", "connections can be tracked")
	made := 0
	track := func(percent uint64) {
		for ; uint64(made)*100 < percent*limit; made++ {
			a, b := net.IPv4(10, 1, byte(made>>8), byte(made)).To4(), net.IPv4(10, 2, byte(made>>16), 1).To4()
			tuple := netlink.IPTuple{Protocol: 17, SrcIP: a, DstIP: b, SrcPort: 1000, DstPort: 53}
			back := netlink.IPTuple{Protocol: 17, SrcIP: b, DstIP: a, SrcPort: 53, DstPort: 1000}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.FAMILY_V4, &netlink.ConntrackFlow{FamilyType: netlink.FAMILY_V4, Forward: tuple, Reverse: back, TimeOut: 600}); err != nil {
				t.Fatalf("connection %d of %d: %v", made, limit, err)
			}
		}
	}
	track(1)
	expect(t, p.Run(t.Context()), health.Degraded, ConntrackLow, "1% or more of nf_conntrack_max in use")
	track(2)
	expect(t, p.Run(t.Context()), health.Fatal, ConntrackExhausted, "2% or more of nf_conntrack_max in use")
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	expect(t, p.Run(t.Context()), health.OK, "OK", "connections can be tracked")
}

func BenchmarkLook(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.Name, func(b *testing.B) {
			host := hostOf(b)
			p := k.Build(probes.Env{Host: host}, k.NewOptions())
			b.ReportAllocs()
			for b.Loop() {
				p.Run(b.Context())
			}
		})
	}
}

func hostOf(b *testing.B) *hostfs.Root {
	b.Helper()
	root, err := hostfs.Open("/")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = root.Close() })
	return root
}
