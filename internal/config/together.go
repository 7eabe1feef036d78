package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// maxConditions bounds the types of conditions that the checks feed: each is an entry of every Node, which every kubelet
// and every controller reads.
const maxConditions = 32

// validateTogether reports what the checks say only together.
func (c *Config) validateTogether(d *strict.Decoder, listed *entries) {
	c.validateConditions(d)
	c.validateDependencies(d, listed)
	for _, cycle := range c.cycles() {
		var paths []string
		for _, name := range cycle[1:] {
			paths = append(paths, checkPath(name)+".dependsOn")
		}
		d.FaultAt("checks depend on each other: "+strings.Join(cycle, " → "), "no cycle", paths...)
	}
}

func (c *Config) validateConditions(d *strict.Decoder) {
	types := map[ConditionType]bool{}
	for _, check := range c.Checks {
		s := check.Settings
		if types[s.Condition] = true; len(types) > maxConditions {
			d.FaultAt(fmt.Sprintf("%s is one type of condition too many", s.Condition), fmt.Sprintf("at most %d types", maxConditions), checkPath(s.Name)+".condition")
			return
		}
	}
}

// validateDependencies reports names of no check. One that an entry has which is itself at fault is known.
func (c *Config) validateDependencies(d *strict.Decoder, listed *entries) {
	var names []string
	for _, check := range c.Checks {
		names = append(names, check.Settings.Name)
	}
	known := func(name string) bool { return slices.Contains(names, name) || listed.lines[name] > 0 }
	judge := func(path string, s CheckSettings) {
		for i, on := range s.DependsOn {
			at := fmt.Sprintf("%s.dependsOn[%d]", path, i)
			switch {
			case on == s.Name:
				d.FaultAt("the check depends on itself", "names of other checks", at)
			case on != "" && !known(on):
				d.FaultAt(strict.Unknown("check", on, names), oneOf(names), at)
			}
		}
	}
	for _, check := range c.Checks {
		judge(checkPath(check.Settings.Name), check.Settings)
	}
	for _, r := range listed.refused {
		judge(r.path, r.check.Settings)
	}
}

// oneOf lists names, unless they are many.
func oneOf(names []string) string {
	const many = 40
	if len(names) > many {
		return fmt.Sprintf("one of the %d checks", len(names))
	}
	return strings.Join(names, ", ")
}

// cycles are lists of checks each of which depends on the next, with the same check at both ends: one for each dependence
// that closes a circle, so that there is none left without them. Names of no check, and a check's own, are passed over.
func (c *Config) cycles() (found [][]string) {
	done := map[string]bool{}
	var walk func(name string, path []string)
	walk = func(name string, path []string) {
		if at := slices.Index(path, name); at >= 0 {
			found = append(found, append(slices.Clone(path[at:]), name))
			return
		}
		check := c.check(name)
		if done[name] || check == nil {
			return
		}
		for _, on := range check.Settings.DependsOn {
			if on != name {
				walk(on, append(path, name))
			}
		}
		done[name] = true
	}
	for _, check := range c.Checks {
		walk(check.Settings.Name, nil)
	}
	return found
}
