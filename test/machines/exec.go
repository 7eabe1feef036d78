package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// environment is what a command in a machine gets.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "SYSTEMD_COLORS=0"}

// Exec runs a command in the running machine, as root, and returns its standard output and error together. The error
// repeats them. The command is outside the machine's control groups: it is not part of any unit.
func (m *Machine) Exec(ctx context.Context, args ...string) (string, error) {
	lead, err := m.lead()
	if err != nil {
		return "", fmt.Errorf("run %q: %w", args, err)
	}
	command := append([]string{"nsenter", "--target=" + strconv.Itoa(lead), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}, args...)
	out, err := runCommand(ctx, nil, command)
	if err != nil {
		return out, fmt.Errorf("run %q in %s: %w", args, m.Name(), err)
	}
	return out, nil
}

// Journal is what a unit wrote to the journal in this boot and those before, without times.
func (m *Machine) Journal(ctx context.Context, unit string) (string, error) {
	return m.Exec(ctx, "journalctl", "--no-pager", "--output=cat", "--unit="+unit)
}

// ReadFile reads a file of the machine, running or off.
func (m *Machine) ReadFile(ctx context.Context, name string) (string, error) {
	out, err := runCommand(ctx, nil, append(m.files(), "cat", name))
	if err != nil {
		return "", fmt.Errorf("read %s in %s: %w", name, m.Name(), err)
	}
	return out, nil
}

// WriteFile writes a file into the machine, running or off, as a whole: nobody there reads half of it. Folders above
// it are made.
func (m *Machine) WriteFile(ctx context.Context, name, text string, mode os.FileMode) error {
	return m.writeFile(ctx, name, strings.NewReader(text), mode)
}

// CopyIn copies a file of the test machine into the machine, with its mode.
func (m *Machine) CopyIn(ctx context.Context, source, name string) error {
	file, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("copy %s into %s: %w", source, m.Name(), err)
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return fmt.Errorf("copy %s into %s: %w", source, m.Name(), err)
	}
	return m.writeFile(ctx, name, file, stat.Mode().Perm())
}

// RemoveFile removes a file, or a folder with all in it, of the machine. What is not there is removed already.
func (m *Machine) RemoveFile(ctx context.Context, name string) error {
	if _, err := runCommand(ctx, nil, append(m.files(), "rm", "-rf", "--", name)); err != nil {
		return fmt.Errorf("remove %s in %s: %w", name, m.Name(), err)
	}
	return nil
}

const writeScript = `mkdir -p "$1" && cat > "$1/.$2.new" && chmod "$3" "$1/.$2.new" && mv "$1/.$2.new" "$1/$2"`

func (m *Machine) writeFile(ctx context.Context, name string, content io.Reader, mode os.FileMode) error {
	dir, base := path.Split(name)
	command := append(m.files(), "sh", "-c", writeScript, "sh", dir, base, strconv.FormatUint(uint64(mode.Perm()), 8))
	if _, err := runCommand(ctx, content, command); err != nil {
		return fmt.Errorf("write %s in %s: %w", name, m.Name(), err)
	}
	return nil
}

// files is a command prefix that sees the machine's files under /, links as the machine sees them: in its own mount
// namespace when it runs (/run and /tmp are mounted there), else in its root.
func (m *Machine) files() []string {
	if lead, err := m.lead(); err == nil {
		return []string{"nsenter", "--target=" + strconv.Itoa(lead), "--mount", "--"}
	}
	return append(m.enter(), "chroot", m.root())
}

// enter is a command prefix that runs in the holder's namespaces.
func (m *Machine) enter(more ...string) []string {
	return append(append([]string{"nsenter", "--target=" + strconv.Itoa(m.anchor), "--mount"}, more...), "--")
}

func runCommand(ctx context.Context, input io.Reader, command []string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdin = environment, input
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nsenter forks: cancel it with its child
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

var errOff = errors.New("the machine is off or between two boots")

// lead is the PID, as we see it, of the machine's PID 1.
func (m *Machine) lead() (int, error) {
	m.mu.Lock()
	nspawn := m.nspawn
	m.mu.Unlock()
	if nspawn == nil || nspawn.Failure() != nil {
		return 0, errOff
	}
	depth := len(namespacePIDs(m.anchor)) + 1 // the machine's PID namespace lies in the holder's
	for _, child := range descendants(nspawn.PID()) {
		if pids := namespacePIDs(child); len(pids) == depth && pids[depth-1] == "1" {
			return child, nil
		}
	}
	return 0, errOff
}

// Signals by which systemd as PID 1 is told to start a target, see systemd(1). Commands such as "systemctl reboot"
// would do it from inside the machine's PID namespace, see listen.
const (
	startReboot   = syscall.Signal(34 + 5) // SIGRTMIN+5
	startPowerOff = syscall.Signal(34 + 4) // SIGRTMIN+4
)

func (m *Machine) signal(signal syscall.Signal) error {
	lead, err := m.lead()
	if err != nil {
		return err
	}
	if err := syscall.Kill(lead, signal); err != nil {
		return fmt.Errorf("signal PID 1 of %s: %w", m.Name(), err)
	}
	return nil
}
