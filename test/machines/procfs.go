package machines

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// childrenOf are the PIDs of a process's children.
func childrenOf(pid int) ([]int, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, fmt.Errorf("list children: %w", err)
	}
	var children []int
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("list children: %s: %w", path, err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

// descendants are the PIDs of children, then their children, two levels deep.
func descendants(pid int) []int {
	children, _ := childrenOf(pid)
	all := children
	for _, child := range children {
		grandchildren, _ := childrenOf(child)
		all = append(all, grandchildren...)
	}
	return all
}

// namespacePIDs are the process's PIDs in every PID namespace it is in, from ours inwards; none when it has ended.
func namespacePIDs(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(pids)
		}
	}
	return nil
}
