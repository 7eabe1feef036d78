package image

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// UnpackArchive unpacks one archive as the upper of two layers.
func (s *Store) UnpackArchive(ctx context.Context, content []byte) error {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(s.dir, newFolder), "")
	if err != nil {
		return err
	}
	u, err := newUnpacker(filepath.Join(dir, rootFolder), s.limits)
	if err != nil {
		return err
	}
	defer u.close()
	want, err := l.DiffID()
	if err != nil {
		return err
	}
	return u.layer(ctx, layer{l, want}, true)
}
