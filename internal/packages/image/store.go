package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// Limits bound what an image may be.
type Limits struct {
	// Bytes of all files, unpacked.
	Bytes int64
	// Entries of all layers.
	Entries int
	// Reserve is what has to stay free on the file system of the store, in bytes.
	Reserve int64
}

// DefaultLimits suit packages that bring drivers.
var DefaultLimits = Limits{Bytes: 20 << 30, Entries: 500_000, Reserve: 512 << 20}

// Store keeps unpacked images in a folder, which has to be its own. It may be used by one process at a time.
type Store struct {
	dir    string
	limits Limits
}

// Names in the folder of a store.
const (
	imagesFolder = "images"
	newFolder    = "new"
	rootFolder   = "root"
	aboutFile    = "about.json"
)

// about is what is remembered of an unpacked image. Its file is the last to be written.
type about struct {
	Name   string   `json:"name"`
	Pinned string   `json:"pinned"`
	Env    []string `json:"env,omitempty"`
}

// Unpacked is an image on the host.
type Unpacked struct {
	// Root is the folder that the image's root was unpacked into. It must not be changed.
	Root string
	// Pinned and Digest as of Image.
	Pinned, Digest string
	// Env is the environment that the image's configuration asks for, as NAME=value.
	Env []string
}

// Open opens a store, and removes what a process that died left behind in it.
func Open(dir string, limits Limits) (*Store, error) {
	s := &Store{dir: dir, limits: limits}
	for _, folder := range []string{imagesFolder, newFolder} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil { // images bring programs that may run as others
		return nil, fmt.Errorf("open image store: %w", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, newFolder))
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	for _, entry := range left {
		if err := os.RemoveAll(filepath.Join(dir, newFolder, entry.Name())); err != nil {
			return nil, fmt.Errorf("clean image store: %w", err)
		}
	}
	return s, nil
}

func (s *Store) place(digest string) string {
	return filepath.Join(s.dir, imagesFolder, strings.ReplaceAll(digest, ":", "-"))
}

// Get finds an image by its digest.
func (s *Store) Get(digest string) (*Unpacked, bool) {
	if _, err := v1.NewHash(digest); err != nil {
		return nil, false
	}
	content, err := os.ReadFile(filepath.Join(s.place(digest), aboutFile))
	var a about
	if err != nil || json.Unmarshal(content, &a) != nil {
		return nil, false
	}
	return &Unpacked{Root: filepath.Join(s.place(digest), rootFolder), Pinned: a.Pinned, Digest: digest, Env: a.Env}, true
}

// Unpack brings an image into the store, unless it is there. Its layers are read once, as a stream.
func (s *Store) Unpack(ctx context.Context, image *Image) (*Unpacked, error) {
	if there, ok := s.Get(image.Digest.String()); ok {
		return there, nil
	}
	if err := s.unpack(ctx, image); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, failure(image.Name, err)
	}
	there, ok := s.Get(image.Digest.String())
	if !ok {
		return nil, failure(image.Name, faultf(NotStored, "it is not in the store after it was unpacked"))
	}
	return there, nil
}

func (s *Store) unpack(ctx context.Context, image *Image) error {
	layers, env, err := image.layers()
	if err != nil {
		return err
	}
	if err := s.fits(layers); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(s.dir, newFolder), "")
	if err != nil {
		return fault{NotStored, err}
	}
	defer func() { _ = os.RemoveAll(dir) }() // what was not moved away; the next Open tries again
	u, err := newUnpacker(filepath.Join(dir, rootFolder), s.limits)
	if err != nil {
		return err
	}
	defer u.close()
	for i, l := range layers {
		if err := u.layer(ctx, l, i > 0); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
	}
	return s.keep(dir, image, about{Name: image.Name, Pinned: image.Pinned, Env: env})
}

// keep makes an unpacked image durable, then the store's.
func (s *Store) keep(dir string, image *Image, a about) error {
	content, err := json.Marshal(a)
	if err != nil {
		return fault{NotStored, err}
	}
	if err := os.WriteFile(filepath.Join(dir, aboutFile), content, 0o600); err != nil {
		return fault{NotStored, err}
	}
	if err := syncAll(dir); err != nil {
		return err
	}
	place := s.place(image.Digest.String())
	if err := os.RemoveAll(place); err != nil { // half removed
		return fault{NotStored, err}
	}
	if err := os.Rename(dir, place); err != nil {
		return fault{NotStored, err}
	}
	return syncAll(filepath.Dir(place))
}

// syncAll waits until the file system that a folder is on has everything on the disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fault{NotStored, err}
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return faultf(NotStored, "sync %s: %w", dir, err)
	}
	return nil
}

// fits looks whether there is room before anything is read: unpacked, an image is hardly ever smaller than packed.
func (s *Store) fits(layers []layer) error {
	var packed int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return faultf(Malformed, "size of a layer: %w", err)
		}
		packed += max(size, 0)
	}
	if packed > s.limits.Bytes {
		return faultf(TooLarge, "it has %d bytes, more than %d", packed, s.limits.Bytes)
	}
	return room(s.dir, packed, s.limits.Reserve)
}

// room fails unless a file system has so many bytes free, and the reserve.
func room(dir string, want, reserve int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return faultf(NotStored, "free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < want+reserve { //nolint:unconvert // the types differ between machines
		return faultf(NoSpace, "%s has %d bytes free, and %d are needed with a reserve of %d", dir, free, want+reserve, reserve)
	}
	return nil
}

// Collect removes the images that nobody wants to keep, and gives their digests.
func (s *Store) Collect(keep func(digest string) bool) (removed []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, imagesFolder))
	if err != nil {
		return nil, fmt.Errorf("collect images: %w", err)
	}
	var faults []error
	for _, entry := range entries {
		digest := strings.Replace(entry.Name(), "-", ":", 1)
		if keep(digest) {
			continue
		}
		place := filepath.Join(s.dir, imagesFolder, entry.Name())
		// Without this it is not there any more, however far the rest gets.
		if err := os.Remove(filepath.Join(place, aboutFile)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			faults = append(faults, err)
			continue
		}
		if err := os.RemoveAll(place); err != nil {
			faults = append(faults, err)
			continue
		}
		removed = append(removed, digest)
	}
	if err := errors.Join(faults...); err != nil {
		return removed, fmt.Errorf("collect images: %w", err)
	}
	return removed, nil
}
