package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
)

// maxChecks bounds the entries of the list. A Host object names at most 64 checks that are not well.
const maxChecks = 256

// entries merges the file's list of checks into the configuration.
type entries struct {
	*strict.Decoder
	config *Config
	kinds  []probes.Kind
	lines  map[string]int // where each name was first listed
	// refused are entries that make and set no check: what they say is judged all the same, and is not in force.
	refused []refusedEntry
}

// refusedEntry is an entry whose name or kind is at fault.
type refusedEntry struct {
	path  string
	check Check
}

// mergeChecks sets the built-in checks that the file lists, and makes those of templates. The lists are more than one
// only in a file that is at fault for it.
func (c *Config) mergeChecks(d *strict.Decoder, lists []*yaml.Node, kinds []probes.Kind) *entries {
	e := &entries{Decoder: d, config: c, kinds: kinds, lines: map[string]int{}}
	for _, list := range lists {
		items := d.Items(list, "checks")
		if len(items) > maxChecks {
			d.Fault(items[maxChecks], "checks", fmt.Sprintf("the list has %d entries", len(items)), fmt.Sprintf("at most %d", maxChecks))
			items = items[:maxChecks]
		}
		for i, item := range items {
			if path := fmt.Sprintf("checks[%d]", i); d.IsMapping(item, path) {
				e.merge(item, path)
			}
		}
	}
	return e
}

// merge decodes an entry.
func (e *entries) merge(item *yaml.Node, path string) {
	if check := e.checkOf(item, path); check != nil {
		at := checkPath(check.Settings.Name)
		e.Place(item, at)
		e.Mapping(item, at, strict.Fields(&check.Settings), strict.Fields(check.Options))
		return
	}
	e.Place(item, path)
	// The name and the kind have been judged.
	name, kind := strict.Key("name"), strict.Key("kind")
	k := e.meant(item)
	if k == nil {
		// Of options nothing is known, nor what the defaults are that values might contradict.
		e.Mapping(item, path, name, kind, strict.Fields(&CheckSettings{}), strict.Others())
		return
	}
	check := newCheck(*k, path)
	check.Settings.DependsOn = nil // the kind's own are no fault of the entry's
	e.Mapping(item, path, name, kind, strict.Fields(&check.Settings), strict.Fields(check.Options))
	e.refused = append(e.refused, refusedEntry{path: path, check: check})
}

// meant is the kind that a refused entry seems to be of; nil: none can be told.
func (e *entries) meant(item *yaml.Node) *probes.Kind {
	for _, key := range []string{"kind", "name"} {
		if n := valueOf(item, key); n != nil && isText(n) {
			if k := e.kind(n.Value); k != nil {
				return k
			}
		}
	}
	return nil
}

// checkPath is the key path of a check's entry. It has the name in place of the number, which says more.
func checkPath(name string) string { return "checks[" + name + "]" }

// checkOf finds or makes the check that an entry is about; nil, with a fault, when it is about none.
func (e *entries) checkOf(item *yaml.Node, path string) *Check {
	name, kind := valueOf(item, "name"), valueOf(item, "kind")
	switch {
	case name == nil:
		e.Fault(item, path+".name", "is missing", e.names())
		if kind != nil && (!isText(kind) || e.kind(kind.Value) == nil) {
			e.unknownKind(kind, path)
		}
		return nil
	case !isText(name) && kind == nil:
		e.Fault(name, path+".name", strict.Unknown("check", name.Value, e.builtIn()), e.names())
		return nil
	case !isText(name):
		e.Fault(name, path+".name", "is not text", labels)
		return nil
	}
	first, twice := e.lines[name.Value]
	if twice {
		e.Fault(name, path+".name", fmt.Sprintf("check %q is listed a second time; the first is in line %d", name.Value, first), "each check once")
	} else {
		e.lines[name.Value] = name.Line
	}
	check := e.builtInCheck(name, kind, path)
	if kind != nil {
		check = e.checkOfKind(name, kind, path)
	}
	if check == nil || twice {
		return nil
	}
	if check.Kind.Template {
		e.config.Checks = append(e.config.Checks, *check)
		check = &e.config.Checks[len(e.config.Checks)-1]
	}
	return check
}

const labels = "lower-case letters, digits and '-', at most 63, with a letter or digit at both ends"

// builtInCheck is the check of an entry without a kind.
func (e *entries) builtInCheck(name, kind *yaml.Node, path string) *Check {
	if kind != nil {
		return nil
	}
	switch k := e.kind(name.Value); {
	case k == nil:
		e.Fault(name, path+".name", strict.Unknown("check", name.Value, e.builtIn()), e.names())
		return nil
	case k.Template:
		e.Fault(name, path+".name", fmt.Sprintf("%q is a kind of which checks are made, each with a name of its own", name.Value), "kind: "+name.Value+", and another name")
		return nil
	}
	return e.config.check(name.Value)
}

// checkOfKind is the check of an entry that names its kind: a new one where the kind is a template.
func (e *entries) checkOfKind(name, kind *yaml.Node, path string) *Check {
	if !isText(kind) || e.kind(kind.Value) == nil {
		e.unknownKind(kind, path)
		return nil
	}
	k := e.kind(kind.Value)
	switch {
	case !k.Template && name.Value != k.Name:
		e.Fault(kind, path+".kind", fmt.Sprintf("there is one check of the kind %q, which has its name", k.Name), "name: "+k.Name)
		return nil
	case !k.Template:
		return e.config.check(k.Name)
	case e.kind(name.Value) != nil:
		e.Fault(name, path+".name", fmt.Sprintf("%q is the name of a kind", name.Value), "a name of the check's own")
		return nil
	case len(validation.IsDNS1123Label(name.Value)) > 0:
		e.Fault(name, path+".name", fmt.Sprintf("%q cannot be the name of a check", shorten(name.Value)), labels)
		return nil
	}
	check := newCheck(*k, name.Value)
	return &check
}

func (e *entries) unknownKind(kind *yaml.Node, path string) {
	e.Fault(kind, path+".kind", strict.Unknown("kind", kind.Value, e.templates()), strings.Join(e.templates(), ", "))
}

func (e *entries) kind(name string) *probes.Kind {
	at := slices.IndexFunc(e.kinds, func(k probes.Kind) bool { return k.Name == name })
	if at < 0 {
		return nil
	}
	return &e.kinds[at]
}

func (e *entries) builtIn() []string   { return named(e.kinds, false) }
func (e *entries) templates() []string { return named(e.kinds, true) }

// names says what an entry's name may be.
func (e *entries) names() string {
	text := strings.Join(e.builtIn(), ", ")
	if len(e.templates()) > 0 {
		text += "; or a name of its own with kind: " + strings.Join(e.templates(), ", ")
	}
	return text
}

func named(kinds []probes.Kind, template bool) []string {
	var names []string
	for _, k := range kinds {
		if k.Template == template {
			names = append(names, k.Name)
		}
	}
	return names
}

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func shorten(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
