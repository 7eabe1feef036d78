package statefile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrDamaged says that a file exists but is truncated, altered, or of a format the reader does not know.
var ErrDamaged = errors.New("state file is damaged or of an unknown format")

// maxSize of a state file in bytes. What is larger is none: reading it could take the memory of the machine.
const maxSize = 16 << 20

// envelope is what lies on disk. SHA256 covers the bytes of Content as they stand in the file.
type envelope struct {
	Format  int             `json:"format"`
	SHA256  string          `json:"sha256"`
	Content json.RawMessage `json:"content"`
}

// Write stores content, as JSON, durably under path. The folder must exist. A crash leaves the old content or the new,
// and perhaps a file that starts with a dot and ends in .tmp, which the next Write of the same path replaces.
func Write(path string, format int, content any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode state file %s: %w", path, err)
	}
	file, err := json.Marshal(envelope{Format: format, SHA256: checksum(raw), Content: raw})
	if err != nil {
		return fmt.Errorf("encode state file %s: %w", path, err)
	}
	if len(file) >= maxSize {
		return fmt.Errorf("write state file %s: %d bytes are more than it may hold", path, len(file))
	}
	err = within(filepath.Dir(path), func() error { return replace(path, append(file, '\n')) })
	if err != nil {
		return fmt.Errorf("write state file %s: %w", path, err)
	}
	return nil
}

// Read fills content from path. The error is fs.ErrNotExist when nothing was ever written, and ErrDamaged when the
// file is not one that Write left, or has another format.
func Read(path string, format int, content any) error {
	var file []byte
	err := within(filepath.Dir(path), func() (err error) {
		file, err = readRegular(path)
		return err
	})
	if err != nil {
		return fmt.Errorf("read state file %s: %w", path, err)
	}
	var e envelope
	if err := json.Unmarshal(file, &e); err != nil {
		return fmt.Errorf("read state file %s: %w: %w", path, ErrDamaged, err)
	}
	if e.Format != format {
		return fmt.Errorf("read state file %s: %w: format %d, not %d", path, ErrDamaged, e.Format, format)
	}
	if checksum(e.Content) != e.SHA256 {
		return fmt.Errorf("read state file %s: %w: checksum does not match", path, ErrDamaged)
	}
	if err := json.Unmarshal(e.Content, content); err != nil {
		return fmt.Errorf("read state file %s: %w: %w", path, ErrDamaged, err)
	}
	return nil
}

// SetAside moves a file that cannot be used to a name that ends in .damaged, which it returns. What lay there goes.
func SetAside(path string) (aside string, err error) {
	aside = path + ".damaged"
	err = within(filepath.Dir(path), func() error { return os.Rename(path, aside) })
	if err != nil {
		return "", fmt.Errorf("move state file %s aside: %w", path, err)
	}
	return aside, nil
}

// readRegular reads a file, and waits for nobody to write into a pipe.
func readRegular(path string) (content []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch is, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !is.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is not a regular file but %s", ErrDamaged, is.Mode())
	}
	content, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(content) > maxSize {
		err = fmt.Errorf("%w: it is larger than %d bytes", ErrDamaged, maxSize)
	}
	return content, err
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// replace is the order of steps that makes a write durable. Do not leave out the last: without it the rename itself may
// be lost by a power cut after Write returned.
func replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	temporary := filepath.Join(dir, "."+filepath.Base(path)+".tmp")
	if err := writeSynced(temporary, content); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// writeSynced makes the file anew: what lies there may be a pipe that nobody reads, or a link to a file of another.
func writeSynced(path string, content []byte) (err error) {
	if err := os.Remove(path); err != nil && !Missing(err) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

// Missing reports whether err says that the file was never written.
func Missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
