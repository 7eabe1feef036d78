package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/statefile"
)

type note struct{ Text string }

func TestReadGivesBackWhatWriteStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "note.json")
	for _, text := range []string{"first", "second, longer than the first", "3"} {
		if err := statefile.Write(path, 1, note{text}); err != nil {
			t.Fatal(err)
		}
		var got note
		if err := statefile.Read(path, 1, &got); err != nil {
			t.Fatal(err)
		}
		if got.Text != text {
			t.Errorf("read %q, want %q", got.Text, text)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("folder has %d entries after three writes, want the file alone: %v", len(entries), entries)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, path string, content []byte)
		want  func(error) bool
	}{
		{
			name:  "a file that was never written",
			spoil: func(t *testing.T, path string, _ []byte) { must(t, os.Remove(path)) },
			want:  statefile.Missing,
		},
		{
			name:  "an empty file",
			spoil: func(t *testing.T, path string, _ []byte) { must(t, os.WriteFile(path, nil, 0o600)) },
			want:  damaged,
		},
		{
			name: "a truncated file",
			spoil: func(t *testing.T, path string, content []byte) {
				must(t, os.WriteFile(path, content[:len(content)/2], 0o600))
			},
			want: damaged,
		},
		{
			name: "a changed byte in the content",
			spoil: func(t *testing.T, path string, content []byte) {
				i := len(content) - 6 // inside the text, before `"}}` and the newline
				content[i] ^= 1
				must(t, os.WriteFile(path, content, 0o600))
			},
			want: damaged,
		},
		{
			name: "another format",
			spoil: func(t *testing.T, path string, _ []byte) {
				must(t, statefile.Write(path, 2, note{"from the future"}))
			},
			want: damaged,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "note.json")
			must(t, statefile.Write(path, 1, note{"some text"}))
			content, err := os.ReadFile(path)
			must(t, err)
			tc.spoil(t, path, content)
			var got note
			if err := statefile.Read(path, 1, &got); !tc.want(err) {
				t.Errorf("Read gave %v and %+v", err, got)
			}
		})
	}
}

func TestWriteInAFolderThatDoesNotExistSaysSo(t *testing.T) {
	err := statefile.Write(filepath.Join(t.TempDir(), "absent", "note.json"), 1, note{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Write gave %v, want an error that says the folder does not exist", err)
	}
}

func TestALinkToAFolderThatIsNotThereIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Symlink("/does/not/exist", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := statefile.Lock(dir); err == nil || !strings.Contains(err.Error(), "a link to /does/not/exist, which is not there") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyOneProcessHoldsAFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := statefile.Lock(dir)
	must(t, err)
	if _, err := statefile.Lock(dir); !errors.Is(err, statefile.ErrInUse) {
		t.Fatalf("second Lock gave %v, want ErrInUse", err)
	}
	must(t, first.Close())
	second, err := statefile.Lock(dir)
	if err != nil {
		t.Fatalf("Lock after the first holder ended: %v", err)
	}
	must(t, second.Close())
}

func damaged(err error) bool { return errors.Is(err, statefile.ErrDamaged) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
