package machines

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fettle-dev/fettle/test/cache"
)

// Recipe of the root. A change of any of it is a new version in the cache.
var (
	release  = "bookworm"
	packages = []string{"systemd", "systemd-sysv", "dbus", "procps", "iproute2", "ca-certificates", "kmod"}
	// masked units would do work of their own, at their own times, on the network.
	masked = []string{"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"}
	// removed is what must differ between machines, or is only ballast.
	removed = []string{"etc/machine-id", "var/lib/dbus/machine-id", "etc/hostname", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*_*"}
	// folders are made: with this one the journal is kept over reboots.
	folders = []string{"var/log/journal"}
)

// Root returns the folder of the machines' root file system. It is shared: nobody may write to it. When it is not in
// the cache it is made with debootstrap, which takes about a minute and needs Debian's archive, and says so on log.
func Root(ctx context.Context, log io.Writer) (string, error) {
	return cache.Get(ctx, "machines", rootKey(), func(ctx context.Context, dir string) error {
		if err := requirePrograms("debootstrap"); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(log, "making the machines' root, Debian %s (once; about a minute)\n", release)
		// In a mount namespace of its own: what debootstrap mounts is gone even when it is killed.
		cmd := exec.CommandContext(ctx, "unshare", "--mount", "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), release, dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("debootstrap %s: %w: %s", release, errors.Join(err, ctx.Err()), tail(out))
		}
		return finishRoot(dir)
	})
}

func rootKey() string {
	recipe := strings.Join(append(append(append(append([]string{}, packages...), masked...), removed...), folders...), ",")
	return fmt.Sprintf("debian-%s-%.4x", release, sha256.Sum256([]byte(recipe)))
}

func finishRoot(dir string) error {
	for _, pattern := range removed {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return fmt.Errorf("trim the machines' root: %w", err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("trim the machines' root: %w", err)
			}
		}
	}
	for _, unit := range masked {
		if err := os.Symlink("/dev/null", filepath.Join(dir, "etc/systemd/system", unit)); err != nil {
			return fmt.Errorf("mask a unit of the machines' root: %w", err)
		}
	}
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return fmt.Errorf("make a folder of the machines' root: %w", err)
		}
	}
	return nil
}

// debianPackages are the packages that the programs we run come from.
var debianPackages = map[string]string{
	"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container",
	"unshare": "util-linux", "nsenter": "util-linux",
}

func requirePrograms(names ...string) error {
	var faults []error
	if os.Geteuid() != 0 {
		faults = append(faults, errors.New("machines need root"))
	}
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			faults = append(faults, fmt.Errorf("machines need %s: apt-get install %s: %w", name, debianPackages[name], err))
		}
	}
	return errors.Join(faults...)
}

func tail(out []byte) string {
	return strings.TrimSpace(string(out[max(0, len(out)-2000):]))
}
