package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/cache"
)

func TestConcurrentCallersShareOneMaking(t *testing.T) {
	t.Setenv("FETTLE_CACHE", t.TempDir())
	var made atomic.Int32
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			dir, err := cache.Get(t.Context(), "things", "v1", func(_ context.Context, dir string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(dir, "thing"), []byte("made"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "thing")); string(text) != "made" {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	callers.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times, want once", made.Load())
	}
}

func TestWhatFailedOrWasKilledIsMadeAfresh(t *testing.T) {
	base := t.TempDir()
	t.Setenv("FETTLE_CACHE", base)
	broken := errors.New("broken")
	if _, err := cache.Get(t.Context(), "things", "v1", func(context.Context, string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the failure", err)
	}
	// What a killed maker leaves: half a thing under the name it has while it is made.
	half := filepath.Join(base, "things", "v1.making-123")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "half"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := cache.Get(t.Context(), "things", "v1", func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "whole" {
		t.Errorf("got %v, %v, want the whole thing alone", entries, err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("what the killed one left is still there: %v", err)
	}
	if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; a machine's root must be open to all", stat.Mode(), err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Setenv("FETTLE_CACHE", t.TempDir())
	making, finish := make(chan struct{}), make(chan struct{})
	var maker sync.WaitGroup
	maker.Go(func() {
		if _, err := cache.Get(t.Context(), "things", "v1", func(context.Context, string) error {
			close(making)
			<-finish
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-making
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := cache.Get(ctx, "things", "v1", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	close(finish)
	maker.Wait()
}
