package barekernel

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/process"
)

// limit bounds one run. It takes some ten seconds on an idle machine.
const limit = 10 * time.Minute

// passed is the line on the console by which a machine says that its tests passed.
const passed = "barekernel: all tests passed"

// Run boots a machine in which the calling test runs again, with these kernel modules and those they need, and fails
// when it fails there. The output is logged.
func Run(t *testing.T, modules ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	kernel, found, err := fetch(ctx, modules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, initrd, console := filepath.Join(dir, "init"), filepath.Join(dir, "initrd"), filepath.Join(dir, "console")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, ".") // tests run in the folder of their package
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	if err := writeInitrd(initrd, program, found); err != nil {
		t.Fatal(err)
	}
	name := "-test.run=^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	machine, err := process.Start(process.Spec{Command: []string{
		"qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", cmp.Or(os.Getenv("FETTLE_VM_ACCELERATOR"), "tcg,thread=multi"), "-smp", "2", "-m", "512",
		"-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off -- " + name + " -test.v",
		"-serial", "file:" + console,
	}, Log: filepath.Join(dir, "qemu")})
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Kill()
	select {
	case <-machine.Done():
	case <-ctx.Done():
	}
	said, _ := os.ReadFile(console) // a machine that said nothing did not pass
	t.Logf("%s%s", said, machine.LogTail())
	if !strings.Contains(string(said), passed) || !strings.Contains(string(said), "--- PASS: "+t.Name()) {
		t.Errorf("it did not pass on Debian's kernel (%v)", ctx.Err())
	}
}
