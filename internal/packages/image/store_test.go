package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fettle-dev/fettle/internal/packages/image"
)

func remoteWrite(at name.Reference, content v1.Image) error { return remote.Write(at, content) }

func find(t testing.TB, content v1.Image) *image.Image {
	t.Helper()
	found, err := image.Registry{}.Find(t.Context(), pushed(t, served(t, nil), content))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhatADeadProcessLeftBehindGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := image.Open(dir, roomy)
	if err != nil {
		t.Fatal(err)
	}
	found := find(t, build(t, archive(t, entry{name: "a", content: "1"})))
	got, err := s.Unpack(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	// It died while it unpacked one image, and while it removed another.
	if err := os.MkdirAll(filepath.Join(dir, "new", "x", "root", "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(got.Root), "about.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(got.Root, "a"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = image.Open(dir, roomy); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "new")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	if _, there := s.Get(found.Digest.String()); there {
		t.Error("half an image counts as one")
	}
	if got, err = s.Unpack(t.Context(), found); err != nil || tree(t, got.Root)["a"] != "1" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAFailureLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := image.Open(dir, image.Limits{Bytes: 100, Entries: 3})
	if err != nil {
		t.Fatal(err)
	}
	found := find(t, build(t, archive(t, entry{name: "a"}, entry{name: "b"}, entry{name: "c"}, entry{name: "d"})))
	if _, err := s.Unpack(t.Context(), found); err == nil {
		t.Fatal("unpacked")
	}
	if _, err := s.Unpack(canceled(t), find(t, build(t, archive(t, entry{name: "a"})))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, folder := range []string{"new", "images"} {
		if left, err := os.ReadDir(filepath.Join(dir, folder)); err != nil || len(left) > 0 {
			t.Errorf("%v %v", left, err)
		}
	}
}

func TestCollect(t *testing.T) {
	s := store(t, roomy)
	var digests []string
	for _, content := range []string{"1", "2", "3"} {
		got, err := s.Unpack(t.Context(), find(t, build(t, archive(t, entry{name: "a", content: content}))))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, got.Digest)
	}
	removed, err := s.Collect(func(digest string) bool { return digest == digests[1] })
	if err != nil || len(removed) != 2 {
		t.Errorf("%v %v", removed, err)
	}
	for i, digest := range digests {
		if _, there := s.Get(digest); there != (i == 1) {
			t.Errorf("image %d: %v", i, there)
		}
	}
	if removed, err = s.Collect(func(string) bool { return true }); err != nil || len(removed) > 0 {
		t.Errorf("%v %v", removed, err)
	}
}

func TestGetTakesNoPaths(t *testing.T) {
	s := store(t, roomy)
	for _, digest := range []string{"", "..", "sha256:../../etc", "sha256-00"} {
		if _, there := s.Get(digest); there {
			t.Errorf("%q is there", digest)
		}
	}
}
