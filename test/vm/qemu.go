package vm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// qemuCommand is the machine's hardware.
func (v *VM) qemuCommand() []string {
	accelerator := os.Getenv("FETTLE_VM_ACCELERATOR") // kvm where it works: where it does not, QEMU may hang rather than fall back
	if accelerator == "" {
		accelerator = "tcg,thread=multi"
	}
	kernel := []string{
		"root=/dev/vda", "rw", "console=ttyS0", "net.ifnames=0", "systemd.hostname=" + v.opts.Name,
		"mitigations=off", // they protect from nobody here and are emulated too
		"panic=-1",        // a kernel panic resets the machine
	}
	return []string{
		"qemu-system-x86_64", "-name", v.opts.Name, "-nodefaults", "-no-user-config", "-display", "none",
		"-accel", accelerator, "-smp", strconv.Itoa(v.opts.CPUs), "-m", strconv.Itoa(v.opts.MemoryMiB),
		"-kernel", v.disk.kernel, "-initrd", v.disk.initrd, "-append", strings.Join(kernel, " "),
		// A flush reaches the host's page cache and no further: it survives QEMU's death, which is our power cut.
		"-drive", "if=none,id=root,format=qcow2,cache=unsafe,discard=unmap,file=" + v.overlay(),
		"-device", "virtio-blk-pci,drive=root",
		"-drive", "if=none,id=seed,format=raw,readonly=on,file=" + v.seed(),
		"-device", "virtio-blk-pci,drive=seed",
		"-netdev", fmt.Sprintf("user,id=net,hostfwd=tcp:127.0.0.1:%[1]d-:%[1]d", v.kubeletPort.Number()),
		"-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + v.agent.socket,
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-chardev", "file,id=console,append=on,path=" + v.Console(),
		"-serial", "chardev:console",
	}
}
