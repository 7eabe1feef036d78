package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

const (
	// whiteout begins the name of an entry that removes what a layer below has under the rest of the name.
	whiteout = ".wh."
	// opaque removes everything that layers below have in its folder.
	opaque = ".wh..wh..opq"
	// longestName is that of Linux, PATH_MAX.
	longestName = 4096
	// chunk is how much is copied between two looks at the context and the disk.
	chunk = 1 << 20
	// lookEvery is how many bytes are written between two looks at the disk.
	lookEvery = 64 << 20
)

// unpacker writes layers, the lowest first, into a folder. Nothing leaves that folder: os.Root sees to it.
type unpacker struct {
	dir    string
	root   *os.Root
	links  *hostfs.Root
	limits Limits

	bytes, looked int64
	entries       int
	// written has what the present layer wrote, so that its whiteouts spare it; nil in the lowest layer.
	written map[uint64]struct{}
	seed    maphash.Seed
	// parent is the last folder an entry was in, by the name of the entry and by where that leads.
	parent, leads string
	buffer        []byte
}

func newUnpacker(dir string, limits Limits) (*unpacker, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fault{NotStored, err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault{NotStored, err}
	}
	links, err := hostfs.Open(dir)
	if err != nil {
		_ = root.Close()
		return nil, fault{NotStored, err}
	}
	return &unpacker{dir: dir, root: root, links: links, limits: limits, seed: maphash.MakeSeed(), buffer: make([]byte, chunk)}, nil
}

func (u *unpacker) close() {
	_ = u.root.Close() // closing what was only walked cannot lose anything
	_ = u.links.Close()
}

// layer unpacks one layer over those before.
func (u *unpacker) layer(ctx context.Context, l layer, above bool) error {
	in, err := l.open()
	if err != nil {
		return err
	}
	defer in.close()
	if u.written = nil; above {
		u.written = map[uint64]struct{}{}
	}
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return in.finish()
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if u.entries++; u.entries > u.limits.Entries {
			return faultf(TooLarge, "it has more than %d entries", u.limits.Entries)
		}
		if err := u.entry(ctx, header, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", header.Name, err)
		}
	}
}

func (u *unpacker) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleaned(h.Name)
	if err != nil || name == "." {
		return err
	}
	folder, err := u.folder(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch rest, removes := strings.CutPrefix(base, whiteout); {
	case base == opaque:
		return u.clear(folder)
	case removes && (rest == "" || rest == "." || rest == ".."):
		return faultf(Malformed, "it removes nothing that has a name")
	case removes && (strings.HasPrefix(rest, whiteout) || u.noted(path.Join(folder, rest))):
		return nil // a note of a file system to itself, or about what this layer brings
	case removes:
		return u.remove(path.Join(folder, rest))
	}
	at := path.Join(folder, base)
	u.note(at)
	return u.write(ctx, h, at, content)
}

// cleaned is the name of an entry relative to the root, without a way out of it.
func cleaned(name string) (string, error) {
	if len(name) > longestName {
		return "", faultf(Malformed, "its name has %d bytes, more than %d", len(name), longestName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", faultf(Malformed, "its name leads upwards")
		}
	}
	if strings.ContainsRune(name, 0) {
		return "", faultf(Malformed, "its name holds a NUL")
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// folder makes the folder that an entry is in, following links as the image would have it, and gives where that leads.
func (u *unpacker) folder(name string) (string, error) {
	if name == "." || name == u.parent && u.leads != "" {
		if name == "." {
			return ".", nil
		}
		return u.leads, nil
	}
	resolved, err := u.links.Resolve("/" + name)
	if err != nil {
		return "", faultf(Malformed, "its folder: %w", err)
	}
	at := strings.TrimPrefix(resolved, "/")
	if at == "" {
		at = "."
	}
	if err := u.root.MkdirAll(at, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) || notFolder(err) {
			return "", faultf(Malformed, "its folder is a file: %w", err)
		}
		return "", fault{NotStored, err}
	}
	u.parent, u.leads = name, at
	return at, nil
}

// write makes an entry, in place of what a layer below has there.
func (u *unpacker) write(ctx context.Context, h *tar.Header, at string, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(h, at)
	case tar.TypeReg:
		return u.file(ctx, h, at, content)
	case tar.TypeSymlink:
		if err := u.remove(at); err != nil {
			return err
		}
		if err := u.root.Symlink(h.Linkname, at); err != nil {
			return stored(err)
		}
		return stored(u.root.Lchown(at, h.Uid, h.Gid))
	case tar.TypeLink:
		return u.link(h, at)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return u.remove(at) // devices are the host's business
	}
	return faultf(Malformed, "it is of an unknown type %q", h.Typeflag)
}

func (u *unpacker) directory(h *tar.Header, at string) error {
	if info, err := u.root.Lstat(at); err == nil && !info.IsDir() {
		if err := u.remove(at); err != nil {
			return err
		}
	}
	if err := u.root.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return stored(err)
	}
	if err := u.root.Lchown(at, h.Uid, h.Gid); err != nil {
		return stored(err)
	}
	return stored(u.root.Chmod(at, h.FileInfo().Mode()))
}

func (u *unpacker) file(ctx context.Context, h *tar.Header, at string, content io.Reader) error {
	if h.Size > u.limits.Bytes-u.bytes {
		return faultf(TooLarge, "with it the image has more than %d bytes", u.limits.Bytes)
	}
	f, err := u.create(at)
	if err != nil {
		return err
	}
	if err := errors.Join(u.copy(ctx, f, content), u.describe(h, f)); err != nil {
		f.Close()
		return err
	}
	return stored(f.Close())
}

func (u *unpacker) create(at string) (*os.File, error) {
	const fresh = os.O_CREATE | os.O_EXCL | os.O_WRONLY
	f, err := u.root.OpenFile(at, fresh, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := u.remove(at); err != nil {
			return nil, err
		}
		f, err = u.root.OpenFile(at, fresh, 0o600)
	}
	return f, stored(err)
}

func (u *unpacker) copy(ctx context.Context, f *os.File, content io.Reader) error {
	for {
		n, err := content.Read(u.buffer)
		if u.bytes += int64(n); u.bytes-u.looked >= lookEvery {
			u.looked = u.bytes
			if err := room(u.dir, 0, u.limits.Reserve); err != nil {
				return err
			}
		}
		if _, err := f.Write(u.buffer[:n]); err != nil {
			return stored(err)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// describe gives owner, mode and time to a file. The owner first: changing it takes setuid away.
func (u *unpacker) describe(h *tar.Header, f *os.File) error {
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		return stored(err)
	}
	if err := f.Chmod(h.FileInfo().Mode()); err != nil {
		return stored(err)
	}
	at := unix.NsecToTimeval(h.ModTime.UnixNano())
	return stored(unix.Futimes(int(f.Fd()), []unix.Timeval{at, at}))
}

func (u *unpacker) link(h *tar.Header, at string) error {
	target, err := cleaned(h.Linkname)
	if err != nil {
		return err
	}
	folder, err := u.folder(path.Dir(target))
	if err != nil {
		return err
	}
	target = path.Join(folder, path.Base(target))
	switch info, err := u.root.Lstat(target); {
	case err != nil:
		return faultf(Malformed, "the file it links to is not there: %.200q", h.Linkname)
	case info.IsDir():
		return faultf(Malformed, "it links to a folder: %.200q", h.Linkname)
	case target == at:
		return nil
	}
	if err := u.remove(at); err != nil {
		return err
	}
	return stored(u.root.Link(target, at))
}

// remove takes away what a path has, if it has anything.
func (u *unpacker) remove(at string) error {
	if info, err := u.root.Lstat(at); err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0) {
		u.parent, u.leads = "", "" // it may have led through here
	}
	return stored(u.root.RemoveAll(at))
}

// clear empties a folder of what layers below wrote into it.
func (u *unpacker) clear(folder string) error {
	dir, err := u.root.Open(folder)
	if err != nil {
		return stored(err)
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return stored(err)
	}
	for _, entry := range entries {
		at := path.Join(folder, entry.Name())
		switch {
		case !u.noted(at):
			err = u.remove(at)
		case entry.IsDir():
			err = u.clear(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// note remembers that the present layer wrote a path, thus also the folders it is in.
func (u *unpacker) note(at string) {
	for u.written != nil && at != "." && !u.noted(at) {
		u.written[maphash.String(u.seed, at)] = struct{}{}
		at = path.Dir(at)
	}
}

func (u *unpacker) noted(at string) bool {
	_, ok := u.written[maphash.String(u.seed, at)]
	return ok
}

// stored is the reason of an error of the folder that is written.
func stored(err error) error {
	if err == nil {
		return nil
	}
	if notFolder(err) || strings.Contains(err.Error(), "escapes") {
		return fault{Malformed, err}
	}
	return fault{NotStored, err}
}
