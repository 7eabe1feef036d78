package vm

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path"
)

// writeSeed writes the second disk: a tar archive, which pads itself to whole sectors.
func writeSeed(target string, files []File) error {
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // holds credentials
	if err != nil {
		return fmt.Errorf("write the seed disk: %w", err)
	}
	archive := tar.NewWriter(file)
	for _, f := range files {
		err = errors.Join(err, addToSeed(archive, f))
	}
	if err := errors.Join(err, archive.Close(), file.Close()); err != nil {
		return fmt.Errorf("write the seed disk: %w", err)
	}
	return nil
}

func addToSeed(archive *tar.Writer, f File) error {
	if !path.IsAbs(f.Path) {
		return fmt.Errorf("file %q for the guest: want an absolute path", f.Path)
	}
	mode := f.Mode.Perm()
	if mode == 0 {
		mode = 0o644
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Clean(f.Path)[1:], Size: int64(len(f.Content)), Mode: int64(mode)}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("file %s for the guest: %w", f.Path, err)
	}
	if _, err := archive.Write(f.Content); err != nil {
		return fmt.Errorf("file %s for the guest: %w", f.Path, err)
	}
	return nil
}
