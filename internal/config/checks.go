package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// mergeChecks sets the checks that the file lists.
func (c *Config) mergeChecks(d *strict.Decoder, list *yaml.Node) {
	var known []string
	for _, check := range c.Checks {
		known = append(known, check.Kind.Name)
	}
	lines := map[string]int{}
	for i, item := range d.Items(list, "checks") {
		path := fmt.Sprintf("checks[%d]", i)
		if !d.IsMapping(item, path) {
			continue
		}
		name := nameOf(item)
		if name == nil {
			d.Fault(item, path+".name", "is missing", strings.Join(known, ", "))
			continue
		}
		at := slices.Index(known, name.Value)
		if name.Kind != yaml.ScalarNode || at < 0 {
			d.Fault(name, path+".name", strict.Unknown("check", name.Value, known), strings.Join(known, ", "))
			continue
		}
		if first, twice := lines[name.Value]; twice {
			d.Fault(name, path+".name", fmt.Sprintf("check %q is listed a second time; the first is in line %d", name.Value, first), "each check once")
			continue
		}
		lines[name.Value] = name.Line
		d.Mapping(item, checkPath(name.Value), strict.Fields(&c.Checks[at].Settings), strict.Fields(c.Checks[at].Options))
	}
}

// checkPath is the key path of a check's entry. It has the name in place of the number, which says more.
func checkPath(name string) string { return "checks[" + name + "]" }

func nameOf(item *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(item.Content); i += 2 {
		if item.Content[i].Value == "name" {
			return item.Content[i+1]
		}
	}
	return nil
}
