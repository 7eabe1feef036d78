package sealing

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/statefile"
)

var place = Binding{NodeUID: "5f1c", Work: "gpu-driver", Name: "PULL_TOKEN"}

func newKey(t testing.TB) *Key {
	t.Helper()
	key, err := LoadOrCreate(t.TempDir())
	must(t, err)
	return key
}

func seal(t testing.TB, key *Key, plaintext string, to Binding) string {
	t.Helper()
	sealed, err := Seal(key.PublicKey(), []byte(plaintext), to)
	must(t, err)
	return sealed
}

func TestASealedValueOpensAtItsPlaceAlone(t *testing.T) {
	key := newKey(t)
	sealed := seal(t, key, "s3cret", place)
	if strings.Contains(sealed, base64.StdEncoding.EncodeToString([]byte("s3cret"))) {
		t.Fatal("it is not sealed at all")
	}
	for _, tc := range []struct {
		name string
		key  *Key
		at   Binding
		ok   bool
	}{
		{"at its place", key, place, true},
		{"by another agent", newKey(t), place, false},
		{"on another node", key, Binding{NodeUID: "5f1d", Work: place.Work, Name: place.Name}, false},
		{"for other work", key, Binding{NodeUID: place.NodeUID, Work: "other", Name: place.Name}, false},
		{"under another name", key, Binding{NodeUID: place.NodeUID, Work: place.Work, Name: "LOG_LEVEL"}, false},
		{"where the parts are divided otherwise", key, Binding{NodeUID: place.NodeUID, Work: place.Work + place.Name}, false},
		{"nowhere", key, Binding{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.key.Open(sealed, tc.at)
			switch {
			case tc.ok && (err != nil || string(got) != "s3cret"):
				t.Errorf("got %q, %v", got, err)
			case !tc.ok && (!errors.Is(err, ErrNotOpened) || got != nil):
				t.Errorf("got %q, %v, want ErrNotOpened", got, err)
			}
		})
	}
}

func TestWhateverIsSealedOpens(t *testing.T) {
	key := newKey(t)
	rapid.Check(t, func(r *rapid.T) {
		text := func(name string) string { return rapid.String().Draw(r, name) }
		plaintext, at := rapid.SliceOf(rapid.Byte()).Draw(r, "plaintext"), Binding{text("node"), text("work"), text("name")}
		sealed, err := Seal(key.PublicKey(), plaintext, at)
		if err != nil {
			r.Fatal(err)
		}
		if got, err := key.Open(sealed, at); err != nil || !bytes.Equal(got, plaintext) {
			r.Fatalf("got %q, %v", got, err)
		}
		if again, err := Seal(key.PublicKey(), plaintext, at); err != nil || again == sealed {
			r.Fatalf("the same value sealed twice looks the same: %s, %v", again, err)
		}
	})
}

func TestAnAlteredValueDoesNotOpen(t *testing.T) {
	key := newKey(t)
	sealed := seal(t, key, "s3cret", place)
	raw, err := decode(sealedPrefix, sealed)
	must(t, err)
	for i := range raw {
		altered := bytes.Clone(raw)
		altered[i] ^= 1
		if got, err := key.Open(encode(sealedPrefix, altered), place); !errors.Is(err, ErrNotOpened) {
			t.Errorf("with byte %d altered: got %q, %v", i, got, err)
		}
	}
	for _, text := range []string{"", sealedPrefix, sealed[:len(sealed)-8], sealed + "AAAA", sealed[:60] + "\n" + sealed[60:], keyPrefix + sealed[len(sealedPrefix):], sealedPrefix + "?"} {
		if got, err := key.Open(text, place); err == nil {
			t.Errorf("%q opened to %q", text, got)
		}
	}
}

func TestSealRefusesWhatIsNoKey(t *testing.T) {
	good := newKey(t).PublicKey()
	if len(good) != 56 {
		t.Errorf("%q has %d characters, want 56", good, len(good))
	}
	// A key of order 1 would make the shared secret known to all.
	for _, key := range []string{"", good[:40], "hpke-mlkem:" + good[len(keyPrefix):], keyPrefix + "????", encode(keyPrefix, make([]byte, 32)), encode(keyPrefix, make([]byte, 33))} {
		if sealed, err := Seal(key, []byte("s3cret"), place); err == nil {
			t.Errorf("sealed to %q: %s", key, sealed)
		}
	}
}

func TestAKeyIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); !statefile.Missing(err) {
		t.Fatalf("got %v, want that there is none", err)
	}
	first, err := LoadOrCreate(dir)
	must(t, err)
	sealed := seal(t, first, "s3cret", place)
	second, err := LoadOrCreate(dir)
	must(t, err)
	if got, err := second.Open(sealed, place); err != nil || string(got) != "s3cret" || second.PublicKey() != first.PublicKey() {
		t.Errorf("after a restart: got %q, %v", got, err)
	}
	file, err := os.Stat(filepath.Join(dir, "sealing.key"))
	must(t, err)
	if file.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %04o", file.Mode().Perm())
	}
}

func TestAKeyThatCannotBeReadStays(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		says  string
	}{
		{"truncated", func(t *testing.T, path string) { must(t, os.Truncate(path, 40)) }, "restore the file, or remove it"},
		{"empty", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, "restore the file, or remove it"},
		{"of a later format", func(t *testing.T, path string) { must(t, statefile.Write(path, keyFormat+1, keyFile{})) }, "format 2"},
		{"of another suite", func(t *testing.T, path string) {
			must(t, statefile.Write(path, keyFormat, keyFile{Suite: "x", Private: make([]byte, 32)}))
		}, "restore the file, or remove it"},
		{"too short", func(t *testing.T, path string) {
			must(t, statefile.Write(path, keyFormat, keyFile{Suite: keyPrefix, Private: []byte("short")}))
		}, "restore the file, or remove it"},
		{"readable by others", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o644)) }, "mode 0644"},
		{"a folder", func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o700)) }, "not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := LoadOrCreate(dir)
			must(t, err)
			path := filepath.Join(dir, "sealing.key")
			tc.spoil(t, path)
			before, _ := os.ReadFile(path)
			_, err = LoadOrCreate(dir)
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error with %q and the path", err, tc.says)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestAFolderThatCannotBeWrittenSaysSo(t *testing.T) {
	_, err := LoadOrCreate(filepath.Join(t.TempDir(), "absent"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "keep the key for sealed values") {
		t.Errorf("got %v", err)
	}
}

// FuzzOpen : nothing but what was sealed opens, and nothing makes Open fall over.
func FuzzOpen(f *testing.F) {
	key := newKey(f)
	sealed := seal(f, key, "s3cret", place)
	f.Add(sealed)
	f.Add(sealedPrefix)
	f.Add(encode(sealedPrefix, make([]byte, 48)))
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := key.Open(text, place); err == nil && (text != sealed || string(got) != "s3cret") {
			t.Errorf("%q opened to %q", text, got)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
