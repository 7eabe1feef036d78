package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/port"
	"github.com/fettle-dev/fettle/test/process"
	"github.com/fettle-dev/fettle/test/scratch"
)

// Options say what a machine is made of.
type Options struct {
	// Name is the host's and the Node's name; default vm1. For kubectl exec and logs the control plane must know it:
	// controlplane.Options.HostAliases{Name: "127.0.0.1"}.
	Name string

	// ControlPlane is joined by kubelet and kube-proxy. Nil boots a machine that belongs to no cluster.
	ControlPlane *controlplane.ControlPlane

	// Images are tarballs (see Image) that are imported before the kubelet starts. The sandbox's image comes by
	// itself. There is no other source of images, so pods use imagePullPolicy Never or IfNotPresent.
	Images []string

	// Kubelet holds fields of KubeletConfiguration that replace ours, for example registerWithTaints.
	Kubelet map[string]any

	// Files are written into the guest before containerd, kubelet and kube-proxy start.
	Files []File

	// CPUs and MemoryMiB are what the guest sees; default 2 and 2048.
	CPUs, MemoryMiB int
}

// File is a file in the guest. Folders above it are made when they are missing.
type File struct {
	Path    string // absolute
	Content []byte
	Mode    os.FileMode // permission bits; 0 is 0644
}

// VM is a machine, running or not. Exec and the like may be called from any goroutine; Boot, Reboot, Kill and Close
// by one at a time.
type VM struct {
	opts        Options
	disk        disk
	folder      *scratch.Folder
	kubeletPort *port.Port
	agent       *guestAgent
	qemu        *process.Process // nil before the first Boot
}

// Limits are generous: they end a test that hangs, and are no statement about speed. Emulated on a busy machine of
// two cores, a boot takes about a minute.
const (
	bootLimit  = 10 * time.Minute
	readyLimit = 10 * time.Minute
	lookEvery  = 250 * time.Millisecond
)

// ForTest makes and boots a machine, waits until its Node is Ready when it has a control plane, and removes it at the
// end of the test. A test that failed gets the ends of console and journal in its log.
func ForTest(t testing.TB, opts Options) *VM {
	t.Helper()
	start := time.Now()
	took := func(what string) {
		t.Logf("%s: %s", what, time.Since(start).Round(time.Second))
		start = time.Now()
	}
	v, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(v.Diagnosis(context.WithoutCancel(t.Context())))
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	took("machine prepared")
	if err := v.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	took("booted")
	if opts.ControlPlane != nil {
		if err := v.AwaitNodeReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		took("from there until the Node is Ready")
	}
	return v
}

// New prepares a machine that is off. The caller must Close it; should the caller be killed, QEMU dies with it and
// the machine's folder is removed at the next New.
func New(ctx context.Context, opts Options) (*VM, error) {
	if opts.Name == "" {
		opts.Name = "vm1"
	}
	if opts.CPUs == 0 {
		opts.CPUs = 2
	}
	if opts.MemoryMiB == 0 {
		opts.MemoryMiB = 2048
	}
	folder, err := scratch.New("vm")
	if err != nil {
		return nil, err
	}
	v := &VM{opts: opts, folder: folder, agent: &guestAgent{socket: folder.Join("agent.sock")}}
	if err := v.prepare(ctx); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

func (v *VM) prepare(ctx context.Context) error {
	binaries, err := controlplane.Binaries(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if v.disk, err = findDisk(ctx, binaries); err != nil {
		return err
	}
	if err := command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", v.disk.root, v.overlay()); err != nil {
		return err
	}
	if v.kubeletPort, err = port.Reserve(port.ReuseAddress); err != nil {
		return err
	}
	files, err := v.seedFiles(ctx)
	if err != nil {
		return err
	}
	return writeSeed(v.seed(), files)
}

// Boot turns the machine on and returns once the guest agent answers, which is early: services are still starting.
func (v *VM) Boot(ctx context.Context) error {
	if v.running() {
		return errors.New("boot the machine: it is on")
	}
	var err error
	if v.qemu, err = process.Start(process.Spec{Command: v.qemuCommand(), Log: v.folder.Join("qemu.log")}); err != nil {
		return err
	}
	_, err = v.awaitBoot(ctx, "")
	return err
}

// BootID is the boot ID of the running system, as in Node.status.nodeInfo.bootID.
func (v *VM) BootID(ctx context.Context) (string, error) {
	id, err := v.ReadFile(ctx, "/proc/sys/kernel/random/boot_id")
	return trimLine(id), err
}

// Reboot asks systemd for a reboot and returns the new boot ID once the guest agent answers again.
func (v *VM) Reboot(ctx context.Context) (string, error) {
	before, err := v.BootID(ctx)
	if err != nil {
		return "", err
	}
	if err := v.spawn(ctx, "systemctl", "reboot"); err != nil {
		return "", fmt.Errorf("reboot: %w", err)
	}
	return v.AwaitReboot(ctx, before)
}

// AwaitReboot waits until the guest runs with another boot ID than before, and returns it.
func (v *VM) AwaitReboot(ctx context.Context, before string) (string, error) {
	return v.awaitBoot(ctx, before)
}

func (v *VM) awaitBoot(ctx context.Context, before string) (id string, err error) {
	err = v.await(ctx, bootLimit, "boot", func(ctx context.Context) (bool, error) {
		id, err = v.BootID(ctx)
		return err == nil && id != before, err
	})
	return id, err
}

// Kill is a power cut: what the guest has not synced is lost. Boot turns the machine on again.
func (v *VM) Kill() {
	if v.qemu != nil {
		v.qemu.Kill()
	}
	v.agent.close()
}

// Close turns the machine off and removes everything it wrote.
func (v *VM) Close() error {
	v.Kill()
	v.kubeletPort.Release()
	return v.folder.Remove()
}

// Name is the host's and the Node's name.
func (v *VM) Name() string { return v.opts.Name }

// PID is QEMU's process ID.
func (v *VM) PID() int { return v.qemu.PID() }

// Console is the path of what the guest wrote to its serial console, over all boots. It goes with Close.
func (v *VM) Console() string { return v.folder.Join("console.log") }

func (v *VM) overlay() string { return v.folder.Join("root.qcow2") }

func (v *VM) seed() string { return v.folder.Join("seed.tar") }

func (v *VM) running() bool {
	if v.qemu == nil {
		return false
	}
	select {
	case <-v.qemu.Done():
		return false
	default:
		return true
	}
}

// await looks until the condition holds, the machine has ended, or the limit is over. An error of a look is not the
// end: it says why it does not hold yet.
func (v *VM) await(ctx context.Context, limit time.Duration, what string, look func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		holds, last := look(ctx)
		if holds {
			return nil
		}
		select {
		case <-v.qemu.Done():
			return fmt.Errorf("wait for %s of %s: %w", what, v.opts.Name, v.qemu.Failure())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of %s: %w; at the last look: %w", what, v.opts.Name, ctx.Err(), last)
		case <-tick.C:
		}
	}
}
