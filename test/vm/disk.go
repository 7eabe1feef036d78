package vm

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/test/cache"
)

// guestFiles are laid over the Debian root as they are.
//
//go:embed all:guest
var guestFiles embed.FS

const (
	suite = "bookworm"
	// diskSize is what the guest sees, in bytes; the file is sparse.
	diskSize = 8 << 30
)

// packages of the root, beside Debian's minimum.
var packages = []string{
	"systemd", "systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "mount", "util-linux", "e2fsprogs", "ca-certificates",
	"linux-image-cloud-amd64", "initramfs-tools", "qemu-guest-agent",
	"containerd", "runc", "containernetworking-plugins", "iptables", "nftables", "conntrack", "ipset",
}

// programs of the control plane's folder that run in the guest.
var programs = []string{"kubelet", "kube-proxy"}

// finish is run in the new root. Names and versions of what is installed stay (dpkg), its documentation goes.
const finish = `
systemctl --quiet enable systemd-networkd nftables containerd vm-seed vm-images kubelet kube-proxy
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service
update-initramfs -u -k all
mkdir -p /var/log/journal # kept over reboots
rm -rf /usr/share/doc /usr/share/man /usr/share/locale /var/cache/apt/archives /var/lib/apt/lists /etc/machine-id /var/lib/dbus/machine-id
: > /etc/machine-id
`

// disk is the cached part of a machine. It is never written to.
type disk struct{ root, kernel, initrd string }

// findDisk returns the disk for the programs in binaries, a folder named after their versions, and builds it when
// the cache has none.
func findDisk(ctx context.Context, binaries string) (disk, error) {
	if err := requirePrograms(); err != nil {
		return disk{}, err
	}
	key, err := diskKey(binaries)
	if err != nil {
		return disk{}, err
	}
	dir, err := cache.Get(ctx, "vm", key, func(ctx context.Context, dir string) error {
		fmt.Fprintf(os.Stderr, "building the disk of virtual machines, %s (once; about a minute)\n", key)
		return buildDisk(ctx, dir, binaries)
	})
	if err != nil {
		return disk{}, err
	}
	return diskIn(dir), nil
}

func diskIn(dir string) disk {
	return disk{root: filepath.Join(dir, "root.ext4"), kernel: filepath.Join(dir, "vmlinuz"), initrd: filepath.Join(dir, "initrd")}
}

// diskKey names the versions and, by a hash, everything else the disk is made from.
func diskKey(binaries string) (string, error) {
	recipe := fmt.Sprintln(suite, packages, programs, finish, diskSize)
	err := fs.WalkDir(guestFiles, "guest", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := guestFiles.ReadFile(path)
		recipe += fmt.Sprintf("%s %q\n", path, content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the guest's files: %w", err)
	}
	hash := sha256.Sum256([]byte(recipe))
	return suite + "-" + filepath.Base(binaries) + "-" + hex.EncodeToString(hash[:6]), nil
}

func buildDisk(ctx context.Context, dir, binaries string) error {
	root, made := filepath.Join(dir, "root"), diskIn(dir)
	// In a mount namespace of its own: what debootstrap mounts is gone even when it is killed.
	if err := command(ctx, "unshare", "--mount", "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, root); err != nil {
		return err
	}
	guest, err := fs.Sub(guestFiles, "guest")
	if err != nil {
		return fmt.Errorf("read the guest's files: %w", err)
	}
	if err := layOver(guest, root); err != nil {
		return err
	}
	for _, name := range programs {
		if err := command(ctx, "install", filepath.Join(binaries, name), filepath.Join(root, "usr/local/bin", name)); err != nil {
			return err
		}
	}
	if err := command(ctx, "chroot", root, "sh", "-euc", finish); err != nil {
		return err
	}
	for pattern, target := range map[string]string{"vmlinuz-*": made.kernel, "initrd.img-*": made.initrd} {
		found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("find the guest's kernel: %d files match boot/%s, want 1", len(found), pattern)
		}
		if err := os.Rename(found[0], target); err != nil {
			return fmt.Errorf("take out the guest's kernel: %w", err)
		}
	}
	if err := sparse(made.root, diskSize); err != nil {
		return err
	}
	if err := command(ctx, "mkfs.ext4", "-q", "-L", "root", "-d", root, made.root); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("remove the unpacked root: %w", err)
	}
	return nil
}

// layOver copies files into the root, replacing what is there, a link too (/etc/resolv.conf may be one).
func layOver(files fs.FS, root string) error {
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		target := filepath.Join(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

func sparse(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// command runs a program to its end and shows what it printed only when it failed.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	printed, err := cmd.CombinedOutput()
	if err != nil {
		const limit = 4096
		return fmt.Errorf("%s: %w\n%s", name, errors.Join(err, ctx.Err()), printed[max(0, len(printed)-limit):])
	}
	return nil
}

// debianPackages are the packages that the programs we run come from.
var debianPackages = map[string]string{
	"debootstrap": "debootstrap", "unshare": "util-linux", "mkfs.ext4": "e2fsprogs",
	"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils",
}

func requirePrograms() error {
	var faults []error
	if os.Geteuid() != 0 {
		faults = append(faults, errors.New("virtual machines need root: debootstrap changes its root"))
	}
	for _, name := range slices.Sorted(maps.Keys(debianPackages)) {
		if _, err := exec.LookPath(name); err != nil {
			faults = append(faults, fmt.Errorf("virtual machines need %s: apt-get install %s: %w", name, debianPackages[name], err))
		}
	}
	return errors.Join(faults...)
}
