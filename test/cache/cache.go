// Package cache keeps what is costly to make and depends on versions alone (programs, machine roots, images) outside
// the checkout, where it outlives a clone.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Get returns the folder <cache>/<kind>/<key> and makes it first when it is not there: fill fills a new folder
// beside it, which is then renamed into place. What is in the cache is therefore complete, also after kills. Other
// callers, in other processes too, wait for the one that makes it.
//
// The cache is $FETTLE_CACHE, else $XDG_CACHE_HOME/fettle, else $HOME/.cache/fettle.
func Get(ctx context.Context, kind, key string, fill func(ctx context.Context, dir string) error) (string, error) {
	base, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, kind, key)
	if exists, err := isFolder(dir); exists || err != nil {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache of %s: %w", kind, err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists, err := isFolder(dir); exists || err != nil { // made while we waited
		return dir, err
	}
	making, err := fresh(dir)
	if err != nil {
		return "", fmt.Errorf("make %s: %w", kind, err)
	}
	if err := fill(ctx, making); err != nil {
		return "", errors.Join(err, os.RemoveAll(making))
	}
	if err := os.Rename(making, dir); err != nil {
		return "", fmt.Errorf("put the new %s in place: %w", kind, err)
	}
	return dir, nil
}

// fresh makes the folder to fill. What one left that was killed is removed: we hold the lock. The name is new, since
// a program that it started may still be writing to the old one.
func fresh(dir string) (string, error) {
	left, err := filepath.Glob(dir + ".making-*")
	if err != nil {
		return "", err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	making, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".making-")
	if err != nil {
		return "", err
	}
	return making, os.Chmod(making, 0o755)
}

func root() (string, error) {
	if dir := os.Getenv("FETTLE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir() // knows XDG_CACHE_HOME
	if err != nil {
		return "", fmt.Errorf("find the cache folder (FETTLE_CACHE chooses one): %w", err)
	}
	return filepath.Join(dir, "fettle"), nil
}

func isFolder(path string) (bool, error) {
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look into the cache: %w", err)
	case !stat.IsDir():
		return false, fmt.Errorf("look into the cache: %s is no folder; remove it", path)
	}
	return true, nil
}

// lock waits for an exclusive lock until ctx ends. A holder that dies loses the lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the cache's lock: %w", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return func() { file.Close() }, nil
	case <-ctx.Done():
		go func() { // the wait itself cannot be interrupted: let go as soon as it ends
			if <-locked == nil {
				file.Close()
			}
		}()
		return nil, fmt.Errorf("wait for %s, held by another process: %w", path, ctx.Err())
	}
}
