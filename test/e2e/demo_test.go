package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestDemo runs `make demo` to its end, and once more until Ctrl-C in the middle of it.
func TestDemo(t *testing.T) {
	t.Run("tells its story", func(t *testing.T) {
		dir := folder(t)
		out, code := demo(t, dir, "")
		if code != 0 {
			t.Fatalf("exit status %d\n%s", code, out)
		}
		rest := out
		for _, step := range []string{
			"all machines are well", "breaking /etc/cni/net.d/10-bridge.conflist on rack1-b", "CNIConfigInvalid", "readiness.k8s.io/network:NoSchedule",
			"its agent saw it", "repairing it", "the taint is gone",
		} {
			_, after, found := strings.Cut(rest, step)
			if !found {
				t.Fatalf("no %q (in this order) in\n%s", step, out)
			}
			rest = after
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})

	t.Run("cleans up after Ctrl-C", func(t *testing.T) {
		dir := folder(t)
		out, code := demo(t, dir, "breaking /etc/cni/net.d/10-bridge.conflist")
		if code == 0 || !strings.Contains(out, "everything is cleaned up") {
			t.Fatalf("exit status %d\n%s", code, out)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// folder is where a demo keeps what it leaves behind none of. Its name is short: those of sockets below it are limited.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "demo-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// demo runs `make demo` with dir for its temporary files. With stopAt it is sent what Ctrl-C sends once that text was printed.
func demo(t *testing.T, dir, stopAt string) (out string, code int) {
	t.Helper()
	root, err := controlplane.RepoRoot()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "make", "demo")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	must(t, cmd.Start())
	must(t, write.Close())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	var all strings.Builder
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if stopAt != "" && strings.Contains(lines.Text(), stopAt) {
			if len(leftovers(t, dir)) == 0 {
				t.Errorf("what the demo keeps while it runs is not in %s", dir)
			}
			must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
			stopAt = ""
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its status is read below
	return all.String(), cmd.ProcessState.ExitCode()
}

// leftovers are the folders of running control planes and machines.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	for _, kind := range []string{"controlplane", "machine"} {
		found, err := filepath.Glob(filepath.Join(dir, "fettle-"+kind+"-[0-9]*"))
		must(t, err)
		all = append(all, found...)
	}
	return all
}
