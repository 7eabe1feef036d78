package custom_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/prober"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/custom"
)

func TestFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("fresh", "state: good\nsince: ever\n")
	write("old", "x")
	write("long", strings.Repeat("x", 64<<10)+"end")
	if err := os.Chtimes(filepath.Join(root, "old"), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/fresh", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := func(message string) health.Result {
		return health.Result{Verdict: health.OK, Reason: "OK", Message: message}
	}
	bad := func(reason, message string) health.Result {
		return health.Result{Verdict: health.Fatal, Reason: reason, Message: message}
	}
	for _, tc := range []struct {
		name string
		o    custom.FileOptions
		want health.Result
	}{
		{name: "exists", o: custom.FileOptions{Path: "/fresh"}, want: ok("/fresh is as it should be")},
		{name: "is a folder", o: custom.FileOptions{Path: "/"}, want: ok("/ is as it should be")},
		{name: "is missing", o: custom.FileOptions{Path: "/none"}, want: bad(custom.FileMissing, "/none does not exist")},
		{name: "is missing, as it should", o: custom.FileOptions{Path: "/none", State: "absent"}, want: ok("/none does not exist")},
		{name: "exists against expectation", o: custom.FileOptions{Path: "/link", State: "absent"}, want: bad(custom.FilePresent, "/link exists")},
		{name: "young enough", o: custom.FileOptions{Path: "/fresh", MaxAge: time.Hour}, want: ok("/fresh is as it should be")},
		{name: "too old", o: custom.FileOptions{Path: "/old", MaxAge: 10 * time.Minute}, want: bad(custom.FileTooOld, "/old was not written for more than 10m0s")},
		{name: "too small", o: custom.FileOptions{Path: "/old", MinSize: 2}, want: bad(custom.FileTooSmall, "/old is smaller than 2")},
		{name: "large enough", o: custom.FileOptions{Path: "/old", MinSize: 1}, want: ok("/old is as it should be")},
		{name: "holds it, behind a link", o: custom.FileOptions{Path: "/link", Content: "(?m)^state: good$"}, want: ok("/link is as it should be")},
		{name: "does not hold it", o: custom.FileOptions{Path: "/fresh", Content: "state: bad"}, want: bad(custom.FileContent, `/fresh does not match "state: bad"`)},
		{name: "holds it too far behind", o: custom.FileOptions{Path: "/long", Content: "end"}, want: bad(custom.FileContent, `/long does not match "end"`)},
		{name: "a pipe is not read", o: custom.FileOptions{Path: "/pipe", Content: "x"}, want: health.Result{Verdict: health.Unknown, Reason: custom.FileUnreadable, Message: "/pipe is not a regular file"}},
		{name: "a reason of one's own", o: custom.FileOptions{Path: "/none", Reason: "MarkerGone"}, want: bad("MarkerGone", "/none does not exist")},
		{name: "a part of the path is a file", o: custom.FileOptions{Path: "/fresh/x"}, want: health.Result{Verdict: health.Unknown, Reason: custom.FileUnreadable, Message: "stat /fresh/x: not a directory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := build(t, custom.File, root, func(o *custom.FileOptions) {
				if tc.o.State == "" {
					tc.o.State = "exists"
				}
				*o = tc.o
			})
			if got := look(t, p); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestFileOnAMountThatDoesNotAnswer(t *testing.T) {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dir := t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	files := prober.New(slog.New(slog.DiscardHandler))
	defer files.Close()
	options := custom.File.NewOptions().(*custom.FileOptions)
	options.Path = dir + "/file"
	p := custom.File.Build(probes.Env{Host: host, Files: files}, options)
	for _, within := range []time.Duration{100 * time.Millisecond, long} {
		if got := lookWithin(t, p, within); got.Reason != custom.FileUnreadable || got.Message != dir+"/file: its file system does not answer" {
			t.Errorf("%+v", got)
		}
	}
}
