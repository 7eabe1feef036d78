package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fettle-dev/fettle/internal/packages/image"
)

// entry is one of a layer. A content that is empty makes a folder of a name that ends in a slash, else an empty file.
type entry struct {
	name, content string
	link          string // symbolic
	hard          string
	mode          int64
	kind          byte
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Typeflag: tar.TypeReg, Size: int64(len(e.content)), Uid: os.Getuid(), Gid: os.Getgid()}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.hard
		case e.kind != 0:
			h.Typeflag = e.kind
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// build makes an image of layers for this machine.
func build(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	built, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: image.Platform.OS, Architecture: image.Platform.Architecture, Config: v1.Config{Env: []string{"A=b"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if built, err = mutate.AppendLayers(built, layer); err != nil {
			t.Fatal(err)
		}
	}
	return built
}

// served is a registry on loopback, behind a handler that may change what it answers.
func served(t testing.TB, around func(http.Handler) http.Handler) (host string) {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if around != nil {
		handler = around(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// pushed puts an image into a registry and gives its reference.
func pushed(t testing.TB, host string, content remote.Taggable) image.Reference {
	t.Helper()
	ref := image.Reference{Repository: host + "/org/package", Version: "1.0.0"}
	at, err := name.ParseReference(ref.String())
	if err != nil {
		t.Fatal(err)
	}
	switch content := content.(type) {
	case v1.Image:
		err = remote.Write(at, content)
	case v1.ImageIndex:
		err = remote.WriteIndex(at, content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func store(t testing.TB, limits image.Limits) *image.Store {
	t.Helper()
	s, err := image.Open(filepath.Join(t.TempDir(), "store"), limits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// roomy are limits that only a full disk could reach.
var roomy = image.Limits{Bytes: 1 << 30, Entries: 100_000}

// unpacked pushes layers as an image and brings it into a store.
func unpacked(t testing.TB, limits image.Limits, layers ...[]byte) (*image.Unpacked, error) {
	t.Helper()
	found, err := image.Registry{}.Find(t.Context(), pushed(t, served(t, nil), build(t, layers...)))
	if err != nil {
		t.Fatal(err)
	}
	return store(t, limits).Unpack(t.Context(), found)
}

// tree gives what is below a folder: the content of files, "-> target" of links, "" of folders.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case d.IsDir():
			found[rel+"/"] = ""
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			found[rel] = "-> " + target
			return err
		default:
			content, err := os.ReadFile(p)
			found[rel] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func canceled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
