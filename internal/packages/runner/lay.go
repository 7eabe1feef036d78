package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/packages/format"
)

// laidFile, in the folder of a package on the host, has the digest of the image that was laid out there. It is written
// last.
const laidFile = ".fettle-image"

// hostFiles writes on the host, by the paths that the host knows.
type hostFiles struct{ host *hostfs.Root }

// at gives the path by which this process reaches a host path, links in its folder followed as the host would.
func (h hostFiles) at(p string) (string, error) {
	dir, err := h.host.Resolve(path.Dir(p))
	if err != nil {
		return "", err
	}
	return filepath.Join(h.host.Path(dir), path.Base(p)), nil
}

// write makes a file with the folders it is in.
func (h hostFiles) write(p string, content []byte) error {
	at, err := h.at(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, content, 0o644)
}

func (h hostFiles) read(p string) ([]byte, error) { return h.host.ReadFile(p) }

func (h hostFiles) exists(p string) bool {
	_, err := h.host.Stat(p)
	return err == nil
}

// remove takes a file away, if it is there.
func (h hostFiles) remove(p string) error {
	at, err := h.at(p)
	if err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lay puts a package where its steps expect it: what its image has, once, and the plan's configuration and what is known of
// the node at every stage. What steps wrote there stays.
func (h hostFiles) lay(folder, image, digest string, w Work, p Package) error {
	if laid, err := h.read(path.Join(folder, laidFile)); err != nil || string(laid) != digest {
		to, err := h.at(folder)
		if err != nil {
			return err
		}
		if err := copyTree(filepath.Join(image, format.ImageFolder), to); err != nil {
			return fmt.Errorf("lay out the package: %w", err)
		}
		if err := h.write(path.Join(folder, laidFile), []byte(digest)); err != nil {
			return fmt.Errorf("lay out the package: %w", err)
		}
	}
	for name, content := range p.ConfigMap {
		if err := h.write(path.Join(folder, format.ConfigMapFolder, name), []byte(content)); err != nil {
			return fmt.Errorf("lay out the configuration: %w", err)
		}
	}
	for name, content := range w.Metadata {
		if err := h.write(path.Join(folder, format.MetadataFolder, name), content); err != nil {
			return fmt.Errorf("lay out what is known of the node: %w", err)
		}
	}
	return nil
}

// copyTree copies files, folders and links over what is there.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return copyEntry(p, filepath.Join(to, rel), info)
	})
}

func copyEntry(from, to string, info fs.FileInfo) error {
	if was, err := os.Lstat(to); err == nil && was.Mode().Type() != info.Mode().Type() {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(target, to)
	case 0:
		if err := copyFile(from, to); err != nil {
			return err
		}
	default:
		return nil // the image was unpacked without devices
	}
	return os.Chmod(to, info.Mode())
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// reap keeps the newest logs of a step.
func (h hostFiles) reap(log string) error {
	at, err := h.at(log)
	if err != nil {
		return err
	}
	// The name ends in the time of the run, which is as long for all.
	stem := at[:len(at)-len("-2006-01-02-150405.log")]
	logs, err := filepath.Glob(escaped(stem) + "-????-??-??-??????.log")
	if err != nil || len(logs) <= format.KeepLogs {
		return err
	}
	slices.Sort(logs)
	for _, old := range logs[:len(logs)-format.KeepLogs] {
		if err := errors.Join(os.Remove(old), removeIfThere(old+".err")); err != nil {
			return err
		}
	}
	return nil
}

func removeIfThere(p string) error {
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// escaped takes the meaning from what a glob would understand.
func escaped(p string) string {
	var out []byte
	for i := range len(p) {
		if p[i] == '*' || p[i] == '?' || p[i] == '[' || p[i] == '\\' {
			out = append(out, '\\')
		}
		out = append(out, p[i])
	}
	return string(out)
}
