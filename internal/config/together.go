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
func (c *Config) validateTogether(d *strict.Decoder) {
	c.validateConditions(d)
	c.validateDependencies(d)
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

func (c *Config) validateDependencies(d *strict.Decoder) {
	var names []string
	for _, check := range c.Checks {
		names = append(names, check.Settings.Name)
	}
	sound := true
	for _, check := range c.Checks {
		s := check.Settings
		at := checkPath(s.Name) + ".dependsOn"
		for _, on := range s.DependsOn {
			switch {
			case on == s.Name:
				d.FaultAt("the check depends on itself", "names of other checks", at)
				sound = false
			case !slices.Contains(names, on):
				d.FaultAt(strict.Unknown("check", on, names), oneOf(names), at)
				sound = false
			}
		}
	}
	if !sound {
		return
	}
	if cycle := c.cycle(); cycle != nil {
		var paths []string
		for _, name := range cycle[1:] {
			paths = append(paths, checkPath(name)+".dependsOn")
		}
		d.FaultAt("checks depend on each other: "+strings.Join(cycle, " → "), "no cycle", paths...)
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

// cycle is a list of checks each of which depends on the next, with the same check at both ends; nil when there is none.
// All names in it exist.
func (c *Config) cycle() []string {
	done := map[string]bool{}
	var walk func(name string, path []string) []string
	walk = func(name string, path []string) []string {
		if at := slices.Index(path, name); at >= 0 {
			return append(slices.Clone(path[at:]), name)
		}
		if done[name] {
			return nil
		}
		for _, on := range c.check(name).Settings.DependsOn {
			if found := walk(on, append(path, name)); found != nil {
				return found
			}
		}
		done[name] = true
		return nil
	}
	for _, check := range c.Checks {
		if found := walk(check.Settings.Name, nil); found != nil {
			return found
		}
	}
	return nil
}
