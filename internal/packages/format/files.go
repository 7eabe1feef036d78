package format

import (
	"fmt"
	"path"
	"strings"
)

// Names of what a package is made of, below the root of its image and below its folder on a host.
const (
	// ImageFolder is where an image has the package.
	ImageFolder = "/skyhook-package"
	// ConfigFile, below ImageFolder.
	ConfigFile = "config.json"
	// StepFolder has the steps.
	StepFolder = "skyhook_dir"
	// RootFolder is copied over the host's root before every stage but those that uninstall; a package may lack it.
	RootFolder = "root_dir"
	// ConfigMapFolder has the plan's configMap, a file for each key. Steps may write to it.
	ConfigMapFolder = "configmaps"
	// MetadataFolder has what is known of the node: annotations.json, labels.json and packages.json.
	MetadataFolder = "node-metadata"
)

// Compare holds the package against the files it came with. exists is asked for paths below the package's folder. faults
// keep the package from running, warnings do not.
func (p *Package) Compare(exists func(path string) bool) (faults, warnings []string) {
	for _, mode := range Modes {
		for _, m := range []Mode{mode, mode.Check()} {
			for i, s := range p.Steps[m] {
				if !exists(path.Join(StepFolder, s.Path)) {
					faults = append(faults, fmt.Sprintf("modes.%s[%d].path: the package has no file %s", m, i, path.Join(StepFolder, s.Path)))
				}
				if check := checkOf(s.Path); !m.IsCheck() && !exists(path.Join(StepFolder, check)) {
					warnings = append(warnings, fmt.Sprintf("modes.%s[%d].path: the package has no file %s that would check %s", m, i, path.Join(StepFolder, check), s.Path))
				}
			}
		}
	}
	return faults, warnings
}

// checkOf is the usual name of the check of a step.
func checkOf(p string) string {
	ext := path.Ext(p)
	return strings.TrimSuffix(p, ext) + "_check" + ext
}

// MissingConfig gives the expected configuration files that the plan's configMap lacks. Uninstalling does without.
func (p *Package) MissingConfig(mode Mode, has func(key string) bool) []string {
	if mode == Uninstall || mode == Uninstall.Check() {
		return nil
	}
	var missing []string
	for _, name := range p.ExpectedConfigFiles {
		if !has(name) {
			missing = append(missing, name)
		}
	}
	return missing
}
