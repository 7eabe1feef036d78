package config

import (
	"reflect"
	"slices"
)

// Changes lists the keys whose values differ from those of another configuration, and the checks that only one of the two
// has. It is empty when the two are the same to an agent.
func (c Config) Changes(from Config) []string {
	before := map[string]key{}
	for _, k := range from.keys() {
		before[k.Path] = k
	}
	var changed []string
	for _, k := range c.keys() {
		was, there := before[k.Path]
		if there && !reflect.DeepEqual(k.Plain(false), was.Plain(false)) {
			changed = append(changed, k.Path)
		}
	}
	return append(changed, differentChecks(c, from)...)
}

// differentChecks lists the checks that only one of two configurations has, or that are of different kinds.
func differentChecks(c, from Config) []string {
	var paths []string
	for _, one := range []struct{ has, lacks Config }{{c, from}, {from, c}} {
		for _, check := range one.has.Checks {
			other, path := one.lacks.check(check.Settings.Name), checkPath(check.Settings.Name)
			if (other == nil || other.Kind.Name != check.Kind.Name) && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) == 0 && !slices.EqualFunc(c.Checks, from.Checks, func(a, b Check) bool { return a.Settings.Name == b.Settings.Name }) {
		return []string{"checks"} // in another order
	}
	return paths
}

// KeepForRun gives those keys that a running agent cannot change the values that they have in the running configuration,
// and says which had others.
func (c *Config) KeepForRun(running Config) (kept []string) {
	now := map[string]key{}
	for _, k := range running.keys() {
		now[k.Path] = k
	}
	for _, k := range c.keys() {
		was, there := now[k.Path]
		if !there || !k.Restart || reflect.DeepEqual(k.Plain(false), was.Plain(false)) {
			continue
		}
		k.Copy(was.Setting)
		kept = append(kept, k.Path)
	}
	return kept
}
