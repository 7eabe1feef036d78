package barekernel

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/test/cache"
)

// metapackage depends on the newest kernel for virtual machines.
const metapackage = "linux-image-cloud-amd64"

// fetch returns a kernel, and the files of modules in the order in which they can be loaded.
func fetch(ctx context.Context, modules []string) (kernel string, files []string, err error) {
	dir, err := cache.Get(ctx, "kernel", metapackage, unpack)
	if err != nil {
		return "", nil, err
	}
	kernels, err := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", nil, fmt.Errorf("look for a kernel in %s: found %q, %w", dir, kernels, err)
	}
	files, err = order(dir, modules)
	return kernels[0], files, err
}

func unpack(ctx context.Context, dir string) error {
	fmt.Fprintln(os.Stderr, "fetching Debian's kernel for tests on it (once)")
	if _, err := command(ctx, dir, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	depends, err := command(ctx, dir, "apt-cache", "depends", "--important", metapackage)
	if err != nil {
		return err
	}
	_, name, found := strings.Cut(string(depends), "Depends: ")
	if !found {
		return fmt.Errorf("find the package that %s depends on: apt-cache says %q", metapackage, depends)
	}
	name, _, _ = strings.Cut(name, "\n")
	if _, err := command(ctx, dir, "apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", strings.TrimSpace(name)); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("download %s: found %q, %w", name, archives, err)
	}
	if _, err := command(ctx, dir, "dpkg-deb", "--extract", archives[0], dir); err != nil {
		return err
	}
	return os.Remove(archives[0])
}

func command(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%q: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return out, nil
}

// order finds modules and all that they need, those first that others need.
func order(dir string, modules []string) (files []string, err error) {
	byName := map[string]string{}
	if err := filepath.WalkDir(filepath.Join(dir, "lib/modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, isModule := strings.CutSuffix(filepath.Base(path), ".ko"); isModule {
			byName[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("list kernel modules: %w", err)
	}
	var add func(name string) error
	add = func(name string) error {
		path, found := byName[strings.ReplaceAll(name, "-", "_")]
		if !found {
			return fmt.Errorf("there is no kernel module %s", name)
		}
		if slices.Contains(files, path) {
			return nil
		}
		needs, err := dependencies(path)
		if err != nil {
			return err
		}
		for _, need := range needs {
			if err := add(need); err != nil {
				return err
			}
		}
		files = append(files, path)
		return nil
	}
	for _, name := range modules {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// dependencies are the modules that one names in its .modinfo section, "depends=a,b".
func dependencies(path string) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a kernel module: %w", err)
	}
	_, after, _ := bytes.Cut(content, []byte("\x00depends="))
	list, _, _ := bytes.Cut(after, []byte{0})
	return strings.FieldsFunc(string(list), func(r rune) bool { return r == ',' }), nil
}
