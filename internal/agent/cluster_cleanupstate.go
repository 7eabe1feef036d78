package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// stateLock is the file that statefile.Lock leaves in every state folder that an agent used.
const stateLock = "lock"

// stateSuffixes end the names of what an agent keeps in its state folder, and of what a crash leaves of that.
var stateSuffixes = []string{".json", ".key", ".tmp"}

// claimForCleanup takes the state folder, if there is one, so that no agent of this machine runs meanwhile.
func claimForCleanup(dir string) (release func(), err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if _, err := os.Stat(filepath.Join(dir, stateLock)); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // not to make one where no agent was
	}
	lock, err := statefile.Lock(dir)
	if errors.Is(err, statefile.ErrInUse) {
		return nil, fmt.Errorf("%w: an agent runs on this machine and would say everything again; stop it first", err)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// removeState removes the agent's files from a state folder. What is not recognised is left, and the folder with it; a
// folder that no agent ever used is left as it is, since a mistyped name must not cost more than the agent's own.
func removeState(dir string, say func(string)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		say("state folder " + dir + " does not exist")
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the agent's state: %w", err)
	}
	used := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == stateLock })
	if !used {
		say("no agent has used " + dir + " as its state folder")
		return nil
	}
	var left []string
	var failures []error
	for _, e := range entries {
		if e.Name() == stateLock {
			continue // the last to go
		}
		if !e.Type().IsRegular() || !slices.Contains(stateSuffixes, filepath.Ext(e.Name())) {
			left = append(left, e.Name())
			continue
		}
		failures = append(failures, removeFile(filepath.Join(dir, e.Name()), say))
	}
	if len(left) > 0 {
		say("left in " + dir + ", since it is not the agent's state: " + strings.Join(left, ", "))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return removeFile(filepath.Join(dir, stateLock), say)
}

func removeFile(path string, say func(string)) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the agent's state: %w", err)
	}
	say("removed " + path)
	return nil
}
