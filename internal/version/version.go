// Package version says which build this is.
package version

import "runtime/debug"

// linked is set by the linker: -X github.com/fettle-dev/fettle/internal/version.linked=v0.1.0.
var linked string

// String is the version given to the linker, else what the Go tool knows of the source: never empty.
func String() string {
	if linked != "" {
		return linked
	}
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range built.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + modified
}
