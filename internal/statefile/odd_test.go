package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// Whatever lies where a state file is expected, reading it ends, and it does not take the machine's memory.
func TestReadRefusesWhatIsNoStateFile(t *testing.T) {
	for _, tc := range []struct {
		name string
		put  func(path string) error
	}{
		{"a named pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a device without an end", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a file of a terabyte", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "note.json")
			must(t, tc.put(path))
			var got note
			if err := statefile.Read(path, 1, &got); !damaged(err) {
				t.Errorf("Read gave %v", err)
			}
		})
	}
}

// What a crash or a hand left under the name of the temporary file holds up no write, and a link there is not followed.
func TestWritePassesByWhatLiesInItsWay(t *testing.T) {
	for _, tc := range []struct {
		name string
		put  func(path, elsewhere string) error
	}{
		{"half of a file", func(path, _ string) error { return os.WriteFile(path, []byte(`{"for`), 0o400) }},
		{"a named pipe", func(path, _ string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a link to another file", func(path, elsewhere string) error { return os.Symlink(elsewhere, path) }},
		{"a folder", func(path, _ string) error { return os.Mkdir(path, 0o700) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path, elsewhere := filepath.Join(dir, "note.json"), filepath.Join(dir, "elsewhere")
			must(t, os.WriteFile(elsewhere, []byte("another's"), 0o600))
			must(t, tc.put(filepath.Join(dir, ".note.json.tmp"), elsewhere))
			must(t, statefile.Write(path, 1, note{"text"}))
			var got note
			must(t, statefile.Read(path, 1, &got))
			content, err := os.ReadFile(elsewhere)
			must(t, err)
			if got.Text != "text" || string(content) != "another's" {
				t.Errorf("read %q; the other file holds %q", got.Text, content)
			}
		})
	}
}

// What Read would not take back is not written.
func TestWriteRefusesWhatIsTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "note.json")
	if err := statefile.Write(path, 1, note{strings.Repeat("x", 17<<20)}); err == nil {
		t.Error("Write took 17 MiB")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

// A folder that turned read-only is held as any other: what it holds counts, and two processes must not use it.
func TestAFolderThatTurnedReadOnlyIsHeld(t *testing.T) {
	dir := t.TempDir()
	mountTmpfs(t, dir)
	first, err := statefile.Lock(dir)
	must(t, err)
	must(t, first.Close())
	must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	second, err := statefile.Lock(dir)
	must(t, err)
	if _, err := statefile.Lock(dir); !errors.Is(err, statefile.ErrInUse) {
		t.Errorf("another Lock gave %v, want ErrInUse", err)
	}
	must(t, second.Close())
}

func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("a file system of its own, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
