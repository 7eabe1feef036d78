package machines

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
)

// Without a control group of its own a machine's systemd would build its tree at the test's, where another machine
// builds the same one, and each would stop the other's services.

// groupFolders are the paths of a control group in the hierarchies that systemd manages: the unified one, and where
// cgroup v1 is mounted the one named systemd.
func groupFolders(name string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("find the control groups: %w", err)
	}
	var folders []string
	for _, mount := range mounts {
		if mount.FSType == "cgroup2" || strings.Contains(mount.VFSOptions, "name=systemd") {
			folders = append(folders, filepath.Join(mount.Mountpoint, name))
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("find the control groups: no hierarchy of cgroup v2, or v1 named systemd, is mounted; machines need one")
	}
	return folders, nil
}

// removeGroups removes control groups with all below them, and waits until the last killed process has left them.
func removeGroups(folders []string) error {
	for deadline := time.Now().Add(bootLimit); ; time.Sleep(20 * time.Millisecond) {
		var left []string
		for _, folder := range folders {
			removeTree(folder)
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				left = append(left, folder)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the control groups %v: processes are still in them", left)
		}
	}
}

func removeTree(folder string) {
	var below []string
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			below = append(below, path)
		}
		return nil // a group that went away meanwhile is what we want
	})
	for _, path := range slices.Backward(below) { // children come after their parents
		_ = os.Remove(path) // fails while a process is in it
	}
}

// removeStaleGroups removes the control groups of machines whose test was killed: their folder is gone and no
// process is left in them.
func removeStaleGroups(folder string) error {
	prefix := filepath.Join(filepath.Dir(folder), groupPrefix)
	patterns, err := groupFolders(groupPrefix + "*")
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		groups, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for stale control groups: %w", err)
		}
		for _, group := range groups {
			_, err := os.Stat(prefix + strings.TrimPrefix(filepath.Base(group), groupPrefix))
			if errors.Is(err, fs.ErrNotExist) && emptyGroup(group) {
				removeTree(group)
			}
		}
	}
	return nil
}

func emptyGroup(folder string) bool {
	empty := true
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "cgroup.procs" {
			pids, err := os.ReadFile(path)
			empty = empty && err == nil && len(pids) == 0
		}
		return nil
	})
	return empty
}
