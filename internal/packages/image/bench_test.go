package image_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/fettle-dev/fettle/internal/packages/image"
)

// BenchmarkUnpack unpacks an image, and the same layer with tar, in turn; it prints how the two compare by the median of
// the pairs, and what the first holds in memory. MiB is the size of the image.
func BenchmarkUnpack(b *testing.B) {
	const mib = 256
	var entries []entry
	for i := range mib {
		content := make([]byte, 1<<19)
		_, _ = rand.Read(content) // half of it cannot be packed
		entries = append(entries, entry{name: fmt.Sprintf("d%d/f%d", i%16, i), content: string(append(content, make([]byte, 1<<19)...))})
	}
	built := build(b, archive(b, entries...))
	dir := b.TempDir()
	path, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		b.Fatal(err)
	}
	if err := path.AppendImage(built); err != nil {
		b.Fatal(err)
	}
	layers, err := built.Layers()
	if err != nil {
		b.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		b.Fatal(err)
	}
	blob := filepath.Join(dir, "layout", "blobs", "sha256", digest.Hex)
	ref := image.Reference{Repository: "x.invalid/y", Version: "1"}
	var ratios []float64
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := filepath.Join(dir, fmt.Sprint(i))
		s, err := image.Open(at, image.DefaultLimits)
		if err != nil {
			b.Fatal(err)
		}
		found, err := image.FromFile(filepath.Join(dir, "layout"), ref)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if _, err := s.Unpack(b.Context(), found); err != nil {
			b.Fatal(err)
		}
		ours := time.Since(began)
		b.StopTimer()
		theirs := withTar(b, blob, filepath.Join(dir, "tar"))
		ratios = append(ratios, ours.Seconds()/theirs.Seconds())
		if err := os.RemoveAll(at); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(ratios)
	b.SetBytes(mib << 20)
	b.ReportMetric(ratios[len(ratios)/2], "×tar")
}

func withTar(b *testing.B, blob, into string) time.Duration {
	b.Helper()
	if err := os.Mkdir(into, 0o700); err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(into)
	began := time.Now()
	script := exec.Command("sh", "-c", `tar -xzf "$1" -C "$2" && sync -f "$2"`, "sh", blob, into)
	var said bytes.Buffer
	script.Stdout, script.Stderr = io.Discard, &said
	if err := script.Run(); err != nil {
		b.Fatalf("%v: %s", err, said.Bytes())
	}
	return time.Since(began)
}
