package reload

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func TestEntriesOf(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	at := func(path string) string { return filepath.Join(root, path) }
	must(t, os.MkdirAll(at("real/deep"), 0o755))
	must(t, os.Mkdir(at("etc"), 0o755))
	put(t, at("real/deep/file"), "")
	put(t, at("etc/plain"), "")
	must(t, os.Symlink(at("real/deep/file"), at("etc/absolute")))
	must(t, os.Symlink("../real/./deep/file", at("etc/relative")))
	must(t, os.Symlink("real", at("link")))
	must(t, os.Symlink("link", at("chain")))
	must(t, os.Symlink("loop", at("loop")))
	for path, want := range map[string][]string{
		"etc/plain":         {"etc/plain"},
		"etc/absolute":      {"etc/absolute", "real/deep/file"},
		"etc/relative":      {"etc/relative", "real/deep/file"},
		"chain/deep/file":   {"chain", "link", "real/deep/file"},
		"etc/missing":       {"etc/missing"},
		"missing/deep/file": {"missing"},
		"link/none/file":    {"link", "real/none"},
		"etc/plain/file":    {"etc/plain/file"},
	} {
		for i := range want {
			want[i] = at(want[i])
		}
		if got := entriesOf(at(path)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := entriesOf(at("loop")); len(got) > 50 {
		t.Errorf("a loop of links has %d entries", len(got))
	}
}

func TestWatchesDoNotPileUp(t *testing.T) {
	m := &configMap{t: t, dir: t.TempDir()}
	m.publish(level("warn"))
	f := newFolders(m.file(), lookAgain, slog.New(slog.DiscardHandler))
	defer f.close()
	if !f.refresh() {
		t.Fatal("not watched")
	}
	go func(events <-chan fsnotify.Event) { // they are taken and let go
		for range events { //nolint:revive // nothing is to be done with one
		}
	}(f.events())
	for range 100 {
		m.publish(level("warn"))
		if !f.refresh() || len(f.watched) != 2 {
			t.Fatalf("%d watched", len(f.watched))
		}
	}
	for deadline := time.Now().Add(generous); len(f.watcher.WatchList()) != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q", f.watcher.WatchList())
		}
	}
}

// A folder that may be searched but not listed cannot be watched.
func TestWithoutWatchesTheFileIsReadFromTimeToTime(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "nodeagent.yaml")
	put(t, path, level("warn"))
	must(t, os.Chmod(dir, 0o111))
	r := start(t, path, t.TempDir())
	r.lookAgain = 20 * time.Millisecond
	r.Watcher.log = slog.New(slog.NewTextHandler(r.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		withoutRightToReadAll(t, func() { r.follow(ctx, r.hup, r.apply) })
	}()
	defer func() { cancel(); <-ended }()
	r.await("word of it", func() bool { return strings.Contains(r.log.String(), "cannot be watched") })
	put(t, path, level("debug"))
	r.awaitLevel("debug")
	put(t, path, level("error"))
	r.awaitLevel("error")
	if said := strings.Count(r.log.String(), "cannot be watched"); said != 1 {
		t.Errorf("said %d times", said)
	}
}
