package strict

import "strings"

// refused are the keys whose values were not taken.
type refused struct {
	whole map[string]bool // by key path
	parts map[string]bool // the same, and all that they are in
}

func newRefused() refused { return refused{whole: map[string]bool{}, parts: map[string]bool{}} }

func (r refused) refuseKey(path string) {
	r.whole[path] = true
	for at := path; at != "" && !r.parts[at]; at = outer(at) {
		r.parts[at] = true
	}
}

// isRefused reports whether a value, a part of it, or the list that it is an item of was not taken.
func (r refused) isRefused(path string) bool {
	list, item := listOf(path)
	return r.parts[path] || item && r.whole[list]
}

// outer is the key path of what a key or an item is in; empty: nothing.
func outer(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// listOf is the key path of the list that a path leads to an item of.
func listOf(path string) (list string, item bool) {
	if !strings.HasSuffix(path, "]") {
		return "", false
	}
	return outer(path), true
}
