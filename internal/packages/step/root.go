package step

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// imageRoot makes a root of an unpacked image: what is written to it goes to memory, the host is under /root, and /proc,
// /sys, /dev and /run are the host's. The mounts are in a namespace of this thread, which has to be locked, and of what it
// starts. remove takes away what the host sees of it, and has to be called after a fault too.
func imageRoot(image string) (root string, remove func(), err error) {
	nothing := func() {}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return "", nothing, fmt.Errorf("make a root of the image: unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", nothing, fmt.Errorf("make a root of the image: part with the host's mounts: %w", err)
	}
	scratch, err := os.MkdirTemp("/run", "fettle-step-")
	if err != nil {
		return "", nothing, fmt.Errorf("make a root of the image: %w", err)
	}
	remove = func() {
		_ = unix.Unmount(scratch, unix.MNT_DETACH) // it is mounted here only
		_ = os.Remove(scratch)                     // it is empty, in memory, and nobody else's
	}
	root = filepath.Join(scratch, "root")
	if err := mountRoot(image, scratch, root); err != nil {
		return "", remove, fmt.Errorf("make a root of the image: %w", err)
	}
	return root, remove, nil
}

func mountRoot(image, scratch, root string) error {
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, dir := range []string{upper, work, root} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir="+image+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	for _, bind := range []struct{ from, at string }{{"/", "root"}, {"/proc", "proc"}, {"/sys", "sys"}, {"/dev", "dev"}, {"/run", "run"}} {
		target := filepath.Join(root, bind.at)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(bind.from, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", bind.from, err)
		}
	}
	return nil
}
