package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// source writes a file to put into an image, and dates it.
func source(t *testing.T, folder, content string, mode os.FileMode, date time.Time) string {
	t.Helper()
	file := filepath.Join(folder, "source")
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, date, date); err != nil {
		t.Fatal(err)
	}
	return file
}

func image(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSameInputGivesTheSameBytesWhereverAndWheneverItIsBuilt(t *testing.T) {
	var tarballs [][]byte
	for _, date := range []time.Time{time.Unix(1_000_000_000, 0), time.Unix(1_700_000_000, 0)} {
		folder := t.TempDir()
		binary := source(t, folder, "#!/bin/true\n", 0o700, date)
		output := filepath.Join(folder, "image.tar")
		image(t, "--output", output, "--tag", "fettle.dev/a:dev", "--file", binary+"=/usr/bin/a", "--file", binary+"=/usr/bin/b", "--entrypoint", "/usr/bin/a")
		content, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		tarballs = append(tarballs, content)
	}
	if !bytes.Equal(tarballs[0], tarballs[1]) {
		t.Error("the second build differs from the first")
	}
}

func TestOrderOfFilesDoesNotChangeTheImage(t *testing.T) {
	folder := t.TempDir()
	binary := source(t, folder, "x", 0o755, time.Now())
	forth := image(t, "--output", filepath.Join(folder, "o"), "--tag", "a.test/a:1", "--file", binary+"=/b", "--file", binary+"=/a/c", "--entrypoint", "/b")
	back := image(t, "--output", filepath.Join(folder, "o"), "--tag", "a.test/a:1", "--file", binary+"=/a/c", "--file", binary+"=/b", "--entrypoint", "/b")
	if forth != back {
		t.Errorf("one order gives %q, the other %q", forth, back)
	}
}

func TestChangedContentChangesTheDigest(t *testing.T) {
	folder := t.TempDir()
	digest := func(content string) string {
		binary := source(t, folder, content, 0o755, time.Unix(0, 0))
		return image(t, "--output", filepath.Join(folder, "o"), "--tag", "a.test/a:1", "--file", binary+"=/a", "--entrypoint", "/a")
	}
	if one, two := digest("one"), digest("two"); one == two {
		t.Errorf("both are %q", one)
	}
}

func TestImageHoldsWhatWasAsked(t *testing.T) {
	folder := t.TempDir()
	output := filepath.Join(folder, "image.tar")
	binary := source(t, folder, "content", 0o700, time.Now())
	image(t, "--output", output, "--tag", "fettle.dev/nodeagent:dev", "--file", binary+"=/usr/bin/nodeagent",
		"--entrypoint", "/usr/bin/nodeagent", "--entrypoint", "run", "--user", "65532:65532", "--architecture", "arm64")

	tag, err := name.NewTag("fettle.dev/nodeagent:dev", name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(output, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := read.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/nodeagent", "run"}) || config.Config.User != "65532:65532" ||
		config.OS != "linux" || config.Architecture != "arm64" {
		t.Errorf("configuration is %+v", config)
	}
	layers, err := read.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var entries []string
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(epoch) || header.Mode != 0o755 {
			t.Errorf("%s: owner %d:%d, date %s, mode %o", header.Name, header.Uid, header.Gid, header.ModTime, header.Mode)
		}
		entries = append(entries, header.Name)
	}
	if want := []string{"usr/", "usr/bin/", "usr/bin/nodeagent"}; !slices.Equal(entries, want) {
		t.Errorf("layer holds %q, want %q", entries, want)
	}
}

func TestWrongInputIsRefusedAndLeavesNothingBehind(t *testing.T) {
	source := source(t, t.TempDir(), "x", 0o755, time.Now())
	good := []string{"--tag", "a.test/a:1", "--file", source + "=/a", "--entrypoint", "/a"}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "no tag", args: good[2:], want: "--tag"},
		{name: "no file", args: []string{"--tag", "a.test/a:1", "--entrypoint", "/a"}, want: "--file"},
		{name: "no entrypoint", args: good[:4], want: "--entrypoint"},
		{name: "a tag without a version", args: append(slices.Clone(good), "--tag", "a.test/b"), want: "--tag a.test/b"},
		{name: "a relative path in the image", args: append([]string{"--file", source + "=a"}, good...), want: "clean absolute path"},
		{name: "a path that climbs out", args: append([]string{"--file", source + "=/../a"}, good...), want: "clean absolute path"},
		{name: "a source that is not there", args: append([]string{"--file", source + ".absent=/b"}, good...), want: "no such file"},
		{name: "a source that is a folder", args: append([]string{"--file", filepath.Dir(source) + "=/b"}, good...), want: "not a regular file"},
		{name: "one path twice", args: append([]string{"--file", source + "=/a"}, good...), want: "given twice"},
		{name: "a file that must also be a folder", args: append([]string{"--file", source + "=/a/b"}, good...), want: "/a is both a file and a folder"},
		{name: "a stray argument", args: append(slices.Clone(good), "stray"), want: "unexpected argument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			err := run(append([]string{"--output", filepath.Join(folder, "image.tar")}, tc.args...), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one that says %q", err, tc.want)
			}
			left, err := os.ReadDir(folder)
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (error %v)", left, err)
			}
		})
	}
	t.Run("no output", func(t *testing.T) {
		if err := run(good, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--output") {
			t.Errorf("error is %v", err)
		}
	})
}
