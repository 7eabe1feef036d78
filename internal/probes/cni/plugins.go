package cni

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/internal/health"
)

// findPlugins looks for every binary that a network needs. What is missing counts for more than what cannot be executed,
// and both for more than what could not be seen; all binaries of the worst sort are named.
func (l look) findPlugins(n network) *health.Result {
	needed := slices.Compact(slices.Sorted(slices.Values(n.plugins)))
	var lost, broken, unseen []string
	for _, name := range needed {
		found, defect, err := l.findPlugin(name)
		switch {
		case err != nil:
			unseen = append(unseen, err.Error())
		case found == "":
			lost = append(lost, name)
		case defect != "":
			broken = append(broken, fmt.Sprintf("%s (%s)", found, defect))
		}
	}
	switch {
	case len(lost) > 0:
		return fault(PluginMissing, "%s needs %s, not found in %s", n.file, strings.Join(lost, ", "), strings.Join(l.BinDirs, ", "))
	case len(broken) > 0:
		return fault(PluginNotExecutable, "%s needs %s", n.file, strings.Join(broken, ", "))
	case len(unseen) > 0:
		return fault(PluginUnreadable, "%s", strings.Join(unseen, "; "))
	}
	return nil
}

// findPlugin gives the path of the first regular file of the name, and what keeps it from being executed. An error means
// that a folder could not be searched and the binary was not found before it.
func (l look) findPlugin(name string) (file, defect string, err error) {
	for _, dir := range l.BinDirs {
		file := path.Join(dir, name)
		st, err := l.host.Stat(file)
		switch {
		case missing(err):
			continue
		case err != nil:
			return "", "", err
		case !st.Mode().IsRegular():
			continue
		case st.Mode().Perm()&0o111 == 0:
			return file, "no right to execute", nil
		case st.Size() == 0:
			return file, "empty file", nil
		}
		return file, "", nil
	}
	return "", "", nil
}
