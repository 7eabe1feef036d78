package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/test/machines"
)

// A machine of systemd-nspawn is not allowed to ask for its clock, and all else is the kernel's.
func TestMachineThatIsAContainer(t *testing.T) {
	const inside = "FETTLE_TEST_INSIDE_CONTAINER"
	if os.Getenv(inside) == "" {
		program := filepath.Join(t.TempDir(), "looks")
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m := machines.ForTest(t, machines.Options{Binds: []machines.Bind{{Source: program, Target: "/usr/bin/looks"}}})
		out, err := m.Exec(t.Context(), "systemd-run", "--pipe", "--wait", "--quiet", "--setenv="+inside+"=1", "/usr/bin/looks", "-test.run=^"+t.Name()+"$", "-test.v")
		if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, k := range kinds() {
		got := k.Build(probes.Env{Host: machine(t, "/")}, k.NewOptions()).Run(t.Context())
		if k.Name == Clock.Name {
			expect(t, got, health.NotApplicable, health.ReasonNotApplicable, "the machine is a container, whose clock is its host's")
		} else if got.Verdict != health.OK && got.Verdict != health.NotApplicable {
			t.Errorf("%s: %+v", k.Name, got)
		}
	}
}
