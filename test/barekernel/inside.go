package barekernel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Inside says whether this process is the first of such a machine.
func Inside() bool { return os.Getpid() == 1 }

// Main runs a package's tests, in such a machine or not, and ends the process or the machine.
func Main(m *testing.M) {
	if !Inside() {
		os.Exit(m.Run())
	}
	if err := furnish(); err != nil {
		fmt.Println(err)
	} else if m.Run() == 0 {
		fmt.Println(passed)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU takes it for its end
	select {}
}

// furnish does what an init would.
func furnish() error {
	for _, at := range []struct{ kind, path string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(at.kind, at.path, at.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", at.path, err)
		}
	}
	modules, err := filepath.Glob(modulesDir + "/*")
	if err != nil {
		return fmt.Errorf("list modules: %w", err)
	}
	for _, path := range modules { // sorted
		if err := load(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.FinitModule(int(file.Fd()), "", 0)
}
