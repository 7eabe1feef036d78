package image_test

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/packages/image"
)

func TestUnpack(t *testing.T) {
	type files = map[string]string
	for _, tc := range []struct {
		name   string
		layers [][]entry
		want   files
	}{
		{name: "files, folders and links", layers: [][]entry{{{name: "a/"}, {name: "a/b", content: "x"}, {name: "c", link: "a/b"}, {name: "d", hard: "a/b"}}},
			want: files{"a/": "", "a/b": "x", "c": "-> a/b", "d": "x"}},
		{name: "folders that no entry has", layers: [][]entry{{{name: "a/b/c", content: "x"}}}, want: files{"a/": "", "a/b/": "", "a/b/c": "x"}},
		{name: "names from the root", layers: [][]entry{{{name: "/a", content: "x"}, {name: "./b", content: "y"}, {name: "./"}}}, want: files{"a": "x", "b": "y"}},
		{name: "a later layer wins", layers: [][]entry{{{name: "a", content: "1"}, {name: "b/c", content: "1"}}, {{name: "a", content: "2"}, {name: "b", content: "2"}}},
			want: files{"a": "2", "b": "2"}},
		{name: "a file becomes a folder", layers: [][]entry{{{name: "a", content: "1"}}, {{name: "a/"}, {name: "a/b", content: "2"}}}, want: files{"a/": "", "a/b": "2"}},
		{name: "a link to a folder becomes one", layers: [][]entry{{{name: "a/x", content: "1"}, {name: "b", link: "a"}}, {{name: "b/"}, {name: "b/y", content: "2"}}},
			want: files{"a/": "", "a/x": "1", "b/": "", "b/y": "2"}},
		{name: "through a link", layers: [][]entry{{{name: "usr/lib/"}, {name: "lib", link: "usr/lib"}, {name: "lib/x", content: "1"}, {name: "abs", link: "/usr"}, {name: "abs/y", content: "2"}}},
			want: files{"usr/": "", "usr/lib/": "", "usr/lib/x": "1", "usr/y": "2", "lib": "-> usr/lib", "abs": "-> /usr"}},
		{name: "through a link that leads out", layers: [][]entry{{{name: "a", link: "../../../../../../tmp"}, {name: "a/x", content: "1"}}}, want: files{"a": "-> ../../../../../../tmp", "tmp/": "", "tmp/x": "1"}},
		{name: "whiteouts", layers: [][]entry{{{name: "a", content: "1"}, {name: "b/c", content: "1"}, {name: "b/d", content: "1"}}, {{name: ".wh.a"}, {name: "b/.wh.c"}}},
			want: files{"b/": "", "b/d": "1"}},
		{name: "a whiteout of nothing", layers: [][]entry{{{name: "a", content: "1"}}, {{name: ".wh.b"}}}, want: files{"a": "1"}},
		{name: "a whiteout spares what its own layer brings", layers: [][]entry{{{name: "a", content: "1"}}, {{name: "a", content: "2"}, {name: ".wh.a"}}}, want: files{"a": "2"}},
		{name: "an opaque folder", layers: [][]entry{{{name: "a/b", content: "1"}, {name: "a/c/d", content: "1"}, {name: "e", content: "1"}},
			{{name: "a/"}, {name: "a/c/f", content: "2"}, {name: "a/.wh..wh..opq"}}}, want: files{"a/": "", "a/c/": "", "a/c/f": "2", "e": "1"}},
		{name: "notes of other file systems", layers: [][]entry{{{name: "a", content: "1"}}, {{name: ".wh..wh.plnk/"}}}, want: files{"a": "1"}},
		{name: "devices are left out", layers: [][]entry{{{name: "dev/null", kind: tar.TypeChar}, {name: "p", kind: tar.TypeFifo}, {name: "a", content: "1"}}}, want: files{"dev/": "", "a": "1"}},
		{name: "a device takes the place of a file", layers: [][]entry{{{name: "a", content: "1"}}, {{name: "a", kind: tar.TypeBlock}}}, want: files{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var layers [][]byte
			for _, entries := range tc.layers {
				layers = append(layers, archive(t, entries...))
			}
			got, err := unpacked(t, roomy, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tree(t, got.Root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestModesAndTimesAreKept(t *testing.T) {
	got, err := unpacked(t, roomy, archive(t, entry{name: "run.sh", content: "x", mode: 0o4751}))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(got.Root, "run.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeSetuid|0o751 || info.ModTime().Unix() != 0 {
		t.Errorf("%v %v", info.Mode(), info.ModTime())
	}
	if !cmp.Equal(got.Env, []string{"A=b"}) {
		t.Errorf("%q", got.Env)
	}
}

func TestHostileImages(t *testing.T) {
	deep := strings.Repeat("d/", 3000)
	for _, tc := range []struct {
		name    string
		limits  image.Limits
		entries []entry
		reason  string
		says    string
	}{
		{name: "a name that leads upwards", entries: []entry{{name: "a/../../x", content: "x"}}, reason: image.Malformed, says: `entry "a/../../x": its name leads upwards`},
		{name: "a hard link that leads upwards", entries: []entry{{name: "a", hard: "../../etc/passwd"}}, reason: image.Malformed, says: "its name leads upwards"},
		{name: "a hard link to what is not there", entries: []entry{{name: "a", hard: "etc/passwd"}}, reason: image.Malformed, says: "the file it links to is not there"},
		{name: "a hard link through a link that leads out", entries: []entry{{name: "e", link: "/etc"}, {name: "a", hard: "e/passwd"}}, reason: image.Malformed, says: "the file it links to is not there"},
		{name: "a hard link to a folder", entries: []entry{{name: "d/"}, {name: "a", hard: "d"}}, reason: image.Malformed, says: "links to a folder"},
		{name: "links in a circle", entries: []entry{{name: "a", link: "b"}, {name: "b", link: "a"}, {name: "a/x", content: "x"}}, reason: image.Malformed, says: "its folder"},
		{name: "a file in a file", entries: []entry{{name: "a", content: "x"}, {name: "a/x", content: "x"}}, reason: image.Malformed, says: "its folder is a file"},
		{name: "a whiteout of its own folder", entries: []entry{{name: "a/.wh."}}, reason: image.Malformed, says: "removes nothing that has a name"},
		{name: "a whiteout of the folder above", entries: []entry{{name: "a/.wh..."}}, reason: image.Malformed, says: "removes nothing that has a name"},
		{name: "a name that is too long", entries: []entry{{name: strings.Repeat("a", 300), content: "x"}}, reason: image.Malformed, says: "too long"},
		{name: "folders without end", entries: []entry{{name: deep, content: ""}}, reason: image.Malformed, says: "more than 4096"},
		{name: "an unknown type", entries: []entry{{name: "a", kind: 'Z'}}, reason: image.Malformed, says: `unknown type 'Z'`},
		{name: "too many entries", limits: image.Limits{Bytes: 1 << 20, Entries: 2}, entries: []entry{{name: "a"}, {name: "b"}, {name: "c"}}, reason: image.TooLarge, says: "more than 2 entries"},
		{name: "too many bytes", limits: image.Limits{Bytes: 1000, Entries: 10}, entries: []entry{{name: "a", content: strings.Repeat("a", 600)}, {name: "b", content: strings.Repeat("a", 600)}}, reason: image.TooLarge, says: "more than 1000 bytes"},
		{name: "no room", limits: image.Limits{Bytes: 1 << 20, Entries: 10, Reserve: 1 << 60}, entries: []entry{{name: "a"}}, reason: image.NoSpace, says: "bytes free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			limits := tc.limits
			if limits == (image.Limits{}) {
				limits = roomy
			}
			_, err := unpacked(t, limits, archive(t, tc.entries...))
			var f *image.Failure
			if !errors.As(err, &f) {
				t.Fatalf("%v", err)
			}
			if f.Reason != tc.reason || !strings.Contains(f.Error(), tc.says) {
				t.Errorf("%s: %v", f.Reason, f)
			}
			if !image.Reasons.Has(f.Reason) {
				t.Errorf("%s is not in the table", f.Reason)
			}
		})
	}
}

// Whatever entries an archive has, in whatever order, nothing appears outside of the folder.
func TestNothingLeavesTheFolder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		names := rapid.SampledFrom([]string{"a", "b", "a/b", "a/b/c", "/a", "../a", "a/../../b", "b/canary", "a/canary", "canary", ".wh.a", "a/.wh.b", "b/.wh.canary", ".wh..wh..opq", "a/.wh..wh..opq", ".wh..", "a/"})
		targets := rapid.SampledFrom([]string{"..", "../..", "../../..", "../../canary", "/", "/tmp", "a", "b", ".", "a/b", "../../../canary"})
		var entries []entry
		for range rapid.IntRange(1, 8).Draw(r, "entries") {
			e := entry{name: names.Draw(r, "name")}
			switch rapid.IntRange(0, 4).Draw(r, "kind") {
			case 0, 1:
				e.link = targets.Draw(r, "target")
			case 2:
				e.hard = targets.Draw(r, "target")
			default:
				e.content = "written"
			}
			if e.link+e.hard != "" {
				e.name = strings.TrimSuffix(e.name, "/")
			}
			if strings.HasSuffix(e.name, "/") {
				e.content = ""
			}
			entries = append(entries, e)
		}
		contained(t, archive(t, entries...))
	})
}

// Whatever bytes an archive has, nothing panics.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, entry{name: "a/b", content: "x"}, entry{name: "c", link: "/etc"}, entry{name: "c/passwd", content: "y"}, entry{name: "d", hard: "a/b"}))
	f.Add(archive(f, entry{name: "a", link: ".."}, entry{name: "a/a/a/x", content: "x"}, entry{name: ".wh.a"}, entry{name: ".wh..wh..opq"}))
	f.Fuzz(func(t *testing.T, content []byte) {
		contained(t, content)
	})
}

// contained unpacks an archive beside a canary.
func contained(t *testing.T, content []byte) {
	t.Helper()
	outside, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := image.Open(filepath.Join(outside, "store"), image.Limits{Bytes: 1 << 20, Entries: 1000})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.UnpackArchive(t.Context(), content) // it may well be refused
	left, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	if canary, err := os.ReadFile(filepath.Join(outside, "canary")); len(left) != 2 || err != nil || string(canary) != "alive" {
		t.Fatalf("beside the store: %v, %q, %v", left, canary, err)
	}
	inside, err := os.ReadDir(filepath.Join(outside, "store", "new"))
	if err != nil || len(inside) != 1 {
		t.Fatalf("in the store: %v %v", inside, err)
	}
}
