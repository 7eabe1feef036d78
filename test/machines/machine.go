package machines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/process"
	"github.com/fettle-dev/fettle/test/scratch"
)

// Options describe a machine.
type Options struct {
	// Name is its host name; default "machine".
	Name string
	// Binds are files and folders of the test machine that appear in it.
	Binds []Bind
	// Files are written into it before it first boots.
	Files []File
}

// Bind is a file or folder of the test machine that appears in a machine.
type Bind struct {
	Source   string // absolute path on the test machine
	Target   string // absolute path in the machine; default Source
	Writable bool
}

// File is a file in a machine. Folders above it are made.
type File struct {
	Path string // absolute, in the machine
	Text string
	Mode os.FileMode // default 0644
}

// Machine is a systemd machine, running or powered off. Its methods may be called from any goroutine.
type Machine struct {
	opts   Options
	folder *scratch.Folder
	groups []string
	holder *process.Process // keeps the machine's mount and PID namespace
	anchor int              // the PID 1 of that PID namespace

	notify *net.UnixConn // where a booted systemd says that it is ready

	mu      sync.Mutex
	nspawn  *process.Process // of the current boot
	ready   bool             // the current boot is complete
	running chan struct{}    // closed when the machine is off
}

// groupPrefix begins the names of a machine's scratch folder and of its control group, which are the same.
const groupPrefix = "fettle-machine-"

// ForTest boots a machine, waits until it is up, and removes it at the end of the test. When the test failed, the
// end of the machine's journal is logged.
func ForTest(t testing.TB, opts Options) *Machine {
	t.Helper()
	m, err := Boot(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journal of %s:\n%s", m.Name(), m.lastWords())
		}
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Boot makes a machine, boots it and waits until systemd says that it is up. The caller must Remove it.
func Boot(ctx context.Context, opts Options) (*Machine, error) {
	if opts.Name == "" {
		opts.Name = "machine"
	}
	if err := requirePrograms("systemd-nspawn", "unshare", "nsenter"); err != nil {
		return nil, err
	}
	root, err := Root(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	folder, err := scratch.New("machine")
	if err != nil {
		return nil, err
	}
	m := &Machine{opts: opts, folder: folder}
	if err := errors.Join(m.prepare(ctx, root), ctx.Err()); err != nil {
		return nil, errors.Join(err, m.Remove())
	}
	if err := m.PowerOn(ctx); err != nil {
		return nil, errors.Join(err, m.Remove())
	}
	return m, nil
}

// Name is the machine's host name.
func (m *Machine) Name() string { return m.opts.Name }

// prepare makes all that lasts over reboots: namespaces, root file system, files.
func (m *Machine) prepare(ctx context.Context, root string) (err error) {
	if err := removeStaleGroups(m.folder.Path()); err != nil {
		return err
	}
	if m.groups, err = groupFolders(filepath.Base(m.folder.Path())); err != nil {
		return err
	}
	if err := m.hold(ctx, root); err != nil {
		return err
	}
	if m.notify, err = net.ListenUnixgram("unixgram", m.notifySocket()); err != nil {
		return fmt.Errorf("listen for the machine's readiness: %w", err)
	}
	go m.listen()
	for _, file := range append([]File{{Path: "/etc/hostname", Text: m.opts.Name + "\n"}}, m.opts.Files...) {
		mode := file.Mode
		if mode == 0 {
			mode = 0o644
		}
		if err := m.writeFile(ctx, file.Path, strings.NewReader(file.Text), mode); err != nil {
			return err
		}
	}
	return nil
}

// PowerOn boots the machine when it is off and waits until it is up.
func (m *Machine) PowerOn(ctx context.Context) error {
	m.mu.Lock()
	if m.isOn() {
		m.mu.Unlock()
		return fmt.Errorf("power on %s: it is on", m.Name())
	}
	err := m.spawn()
	if err == nil {
		m.running = make(chan struct{})
		go m.supervise(m.nspawn, m.running)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = m.AwaitBoot(ctx, "")
	return err
}

// spawnScript moves itself into the machine's control groups and becomes systemd-nspawn.
const spawnScript = `
groups=$1; shift
for group in $groups; do mkdir -p "$group" && echo $$ > "$group/cgroup.procs" || exit; done
exec systemd-nspawn "$@" < /dev/null`

// spawn starts one boot. m.mu is held.
func (m *Machine) spawn() (err error) {
	command := append(m.enter("--pid"), "sh", "-c", spawnScript, "sh", strings.Join(m.groups, " "),
		"--quiet", "--directory="+m.root(), "--boot", "--machine="+m.Name(), "--settings=no",
		"--notify-ready=yes",
		"--register=no", "--keep-unit", // needs no machined and no system bus outside
		"--link-journal=no", "--timezone=off", "--resolv-conf=copy-host", "--console=read-only")
	for _, bind := range m.opts.Binds {
		target, flag := bind.Target, "--bind-ro="
		if target == "" {
			target = bind.Source
		}
		if bind.Writable {
			flag = "--bind="
		}
		command = append(command, flag+bind.Source+":"+target)
	}
	m.ready = false
	m.nspawn, err = process.Start(process.Spec{
		Command: command,
		Env:     append(os.Environ(), "NOTIFY_SOCKET="+m.notifySocket().Name),
		Log:     m.folder.Join("console.log"),
	})
	return err
}

// wantsReboot is the exit status by which systemd-nspawn with --keep-unit asks to be started again.
const wantsReboot = 133

// supervise boots the machine again as often as it asks for it, also on its own account.
func (m *Machine) supervise(nspawn *process.Process, off chan struct{}) {
	for nspawn.ExitCode() == wantsReboot {
		m.mu.Lock()
		err := m.spawn()
		nspawn = m.nspawn
		m.mu.Unlock()
		if err != nil {
			break
		}
	}
	close(off)
}

// isOn says whether the machine is running or rebooting. m.mu is held.
func (m *Machine) isOn() bool {
	if m.running == nil {
		return false
	}
	select {
	case <-m.running:
		return false
	default:
		return true
	}
}

// AwaitBoot waits until the machine is up with a boot ID other than before (empty: any) and returns it. Units may
// have failed.
func (m *Machine) AwaitBoot(ctx context.Context, before string) (bootID string, err error) {
	err = poll(ctx, fmt.Sprintf("%s is up", m.Name()), func() (bool, error) {
		m.mu.Lock()
		on, ready, nspawn := m.isOn(), m.ready, m.nspawn
		m.mu.Unlock()
		if !on {
			return false, fmt.Errorf("%s is off: %w", m.Name(), nspawn.Failure())
		}
		if !ready {
			return false, nil
		}
		bootID, err = m.BootID()
		return err == nil && bootID != before, nil // an error is that it went down meanwhile
	})
	return bootID, err
}

// BootID is the machine's /proc/sys/kernel/random/boot_id.
func (m *Machine) BootID() (string, error) {
	lead, err := m.lead()
	if err != nil {
		return "", fmt.Errorf("read the boot ID of %s: %w", m.Name(), err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/sys/kernel/random/boot_id", lead))
	if err != nil {
		return "", fmt.Errorf("read the boot ID of %s: %w", m.Name(), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Reboot reboots the machine as `machinectl reboot` does, waits until it is up again and returns its new boot ID.
func (m *Machine) Reboot(ctx context.Context) (bootID string, err error) {
	before, err := m.BootID()
	if err != nil {
		return "", err
	}
	if err := m.signal(startReboot); err != nil {
		return "", fmt.Errorf("reboot: %w", err)
	}
	return m.AwaitBoot(ctx, before)
}

// PowerOff shuts the machine down as `machinectl poweroff` does and waits until it is off. PowerOn boots it again.
func (m *Machine) PowerOff(ctx context.Context) error {
	if err := m.signal(startPowerOff); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	select {
	case <-m.off():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until %s is off: %w", m.Name(), ctx.Err())
	}
}

// Kill ends all processes of the machine at once, as a power cut does, and waits for it. What was written stays in
// the page cache, synced or not. PowerOn boots it again.
func (m *Machine) Kill() {
	m.mu.Lock()
	nspawn := m.nspawn
	m.mu.Unlock()
	if err := m.signal(syscall.SIGKILL); err != nil && nspawn != nil { // else nspawn cleans up and ends by itself
		nspawn.Kill()
	}
	<-m.off()
}

// off is closed when the machine is off.
func (m *Machine) off() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		never := make(chan struct{})
		close(never)
		return never
	}
	return m.running
}

// Remove kills the machine and removes all of it.
func (m *Machine) Remove() error {
	if m.holder != nil {
		m.holder.Kill()
		<-m.off()
	}
	if m.notify != nil {
		_ = m.notify.Close() // ends listen
	}
	return errors.Join(removeGroups(m.groups), m.folder.Remove())
}

// lastWords is the end of the journal, or of the console when there is no journal to ask.
func (m *Machine) lastWords() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := m.Exec(ctx, "journalctl", "--no-pager", "--lines=60", "--output=short-monotonic")
	if err == nil {
		return out
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nspawn == nil {
		return err.Error()
	}
	return m.nspawn.LogTail()
}

// poll looks every 20 ms until holds, which ends it with an error too.
func poll(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	for {
		done, err := holds()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// bootLimit bounds one boot or shutdown; a boot takes about a second.
const bootLimit = 2 * time.Minute
