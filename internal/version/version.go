// Package version says which build this is.
package version

// Version is set by the linker: a tag, or a commit, with -dirty when the tree had changes.
var Version = "unknown"
