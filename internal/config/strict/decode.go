package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decoder reads one file and collects what is wrong with it.
type Decoder struct {
	file   string
	inline bool // the text is not that of a file and has no lines
	faults Faults
	more   int              // faults beyond maxFaults
	places map[string]place // where the value of a key path was given
	refused
}

// NewDecoder starts with no faults. file is the name that they give as the place.
func NewDecoder(file string) *Decoder {
	return &Decoder{file: file, places: map[string]place{}, refused: newRefused()}
}

// Document parses the file's single YAML document and returns its root, a mapping; nil when it is empty or not usable.
func (d *Decoder) Document(content []byte) *yaml.Node {
	reader := yaml.NewDecoder(bytes.NewReader(content))
	var first, second yaml.Node
	if err := reader.Decode(&first); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
		return nil
	}
	switch err := reader.Decode(&second); {
	case err == nil:
		d.fault(d.at(second.Line), "", "a second YAML document starts here", "one document")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return nil
	}
	root := first.Content[0]
	if root.ShortTag() == "!!null" {
		return nil
	}
	d.refuse(root)
	if root.Kind != yaml.MappingNode {
		d.fault(d.at(root.Line), "", "the file holds "+describe(root), "a mapping of keys to values")
		return nil
	}
	return root
}

var syntaxLine = regexp.MustCompile(`^line (\d+): `)

func (d *Decoder) syntax(err error) {
	text, at := strings.TrimPrefix(err.Error(), "yaml: "), place{where: d.file}
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		text, at = strings.TrimPrefix(text, m[0]), d.at(line)
	}
	d.fault(at, "", "not valid YAML: "+text, "")
}

// refuse reports the features of YAML that say one thing in a roundabout way.
func (d *Decoder) refuse(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(d.at(n.Line), "", fmt.Sprintf("alias *%s: aliases are not supported", n.Value), "the value written out")
	case n.Anchor != "":
		d.fault(d.at(n.Line), "", fmt.Sprintf("anchor &%s: anchors are not supported", n.Anchor), "the value alone")
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(d.at(n.Line), "", fmt.Sprintf("tag %s: tags are not supported", quote(n.Tag)), "the value alone")
	}
	for _, child := range n.Content {
		d.refuse(child)
	}
}

// Target takes keys of a mapping.
type Target interface {
	keys() []string
	// decode takes the key's value; false when the key is not one of its own.
	decode(d *Decoder, key, path string, value *yaml.Node) bool
}

// Raw takes one key's value as it is.
type Raw struct {
	name  string
	nodes []*yaml.Node
}

// Key makes a Target that keeps the value of one key for the caller to decode.
func Key(name string) *Raw { return &Raw{name: name} }

// Node is the value, nil when the key was not there.
func (r *Raw) Node() *yaml.Node {
	if len(r.nodes) == 0 {
		return nil
	}
	return r.nodes[0]
}

// Nodes are all values of a key that is at fault for being set more than once.
func (r *Raw) Nodes() []*yaml.Node { return r.nodes }

func (r *Raw) keys() []string { return []string{r.name} }

func (r *Raw) decode(_ *Decoder, key, _ string, value *yaml.Node) bool {
	if key == r.name {
		r.nodes = append(r.nodes, value)
	}
	return key == r.name
}

// Rest takes every key, and has to come last: it keeps the names of the keys that no Target before it knew.
type Rest struct{ names []string }

// Others makes a Rest, for files that may have keys which mean nothing here.
func Others() *Rest { return &Rest{} }

// Names are the keys' names in the order of the file.
func (r *Rest) Names() []string { return r.names }

func (r *Rest) keys() []string { return nil }

func (r *Rest) decode(_ *Decoder, key, _ string, _ *yaml.Node) bool {
	r.names = append(r.names, printable(key))
	return true
}

// fields takes the keys that the fields of a struct name.
type fields struct{ value reflect.Value }

// Fields makes a Target of a pointer to a struct. Keys that are absent leave their fields as they are.
func Fields(pointer any) Target { return fields{reflect.ValueOf(pointer).Elem()} }

func (f fields) keys() []string {
	var names []string
	for _, field := range keyedIn(f.value) {
		names = append(names, field.key)
	}
	return names
}

func (f fields) decode(d *Decoder, key, path string, value *yaml.Node) bool {
	for _, field := range keyedIn(f.value) {
		if field.key == key {
			d.value(value, path, field.value, field.tag)
			return true
		}
	}
	return false
}

// Mapping decodes a mapping's keys into the targets that know them. prefix is the mapping's own key path, "" for the root.
func (d *Decoder) Mapping(n *yaml.Node, prefix string, targets ...Target) {
	var known []string
	for _, t := range targets {
		known = append(known, t.keys()...)
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.fault(d.at(key.Line), prefix, "a key is "+describe(key), "text")
			continue
		}
		path := join(prefix, printable(key.Value))
		if first, twice := lines[key.Value]; twice {
			d.fault(d.at(key.Line), path, fmt.Sprintf("is set a second time; the first is in line %d", first), "")
		} else {
			lines[key.Value] = key.Line
			d.places[path] = d.at(key.Line)
		}
		if !slices.ContainsFunc(targets, func(t Target) bool { return t.decode(d, key.Value, path, value) }) {
			d.fault(d.at(key.Line), path, Unknown("key", key.Value, known), strings.Join(known, ", "))
		}
	}
}

// Items returns the items of a list; none, with a fault, when the node is something else. A nil node is an empty list.
func (d *Decoder) Items(n *yaml.Node, path string) []*yaml.Node { return d.items(n, path, "") }

// items is Items for a field that may be secret.
func (d *Decoder) items(n *yaml.Node, path string, tag reflect.StructTag) []*yaml.Node {
	switch {
	case n == nil, n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null", n.Kind == yaml.AliasNode:
		return nil
	case n.Kind != yaml.SequenceNode:
		d.refuseAt(n, path, "is "+shown(n, tag), "a list")
		return nil
	}
	return n.Content
}

// IsMapping reports a fault unless the node is a mapping.
func (d *Decoder) IsMapping(n *yaml.Node, path string) bool { return d.isMapping(n, path, "") }

// isMapping is IsMapping for a field that may be secret.
func (d *Decoder) isMapping(n *yaml.Node, path string, tag reflect.StructTag) bool {
	if n.Kind != yaml.MappingNode && n.Kind != yaml.AliasNode {
		d.refuseAt(n, path, "is "+shown(n, tag), "a mapping of keys to values")
	}
	return n.Kind == yaml.MappingNode
}

// Place notes where something is that has keys, for what is wrong with a key that is not there.
func (d *Decoder) Place(n *yaml.Node, path string) { d.places[path] = d.at(n.Line) }

// Fault reports something that the caller found wrong at a node.
func (d *Decoder) Fault(n *yaml.Node, path, what, allowed string) {
	d.fault(d.at(n.Line), path, what, allowed)
}

// refuseAt reports a value that is not taken.
func (d *Decoder) refuseAt(n *yaml.Node, path, what, allowed string) {
	d.refuseKey(path)
	d.fault(d.at(n.Line), path, what, allowed)
}

func (d *Decoder) value(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag) {
	switch {
	case n.Kind == yaml.AliasNode: // reported by refuse
		d.refuseKey(path)
	case isList(into):
		items := d.items(n, path, tag)
		list := reflect.MakeSlice(into.Type(), len(items), len(items))
		for i, item := range items {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.places[at] = d.at(item.Line)
			if isStruct(list.Index(i)) || isList(list.Index(i)) {
				d.value(item, at, list.Index(i), tag)
			} else {
				d.scalar(item, at, list.Index(i), tag, assign)
			}
		}
		if items != nil || n.Kind == yaml.SequenceNode {
			into.Set(list)
		}
	case isStruct(into):
		if n.ShortTag() != "!!null" && d.isMapping(n, path, tag) {
			d.Mapping(n, path, fields{into})
		}
	default:
		d.scalar(n, path, into, tag, assignOrKeep)
	}
}

func (d *Decoder) scalar(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag, assign func(reflect.Value, reflect.StructTag, string) string) {
	var what string
	switch {
	case n.Kind == yaml.AliasNode: // reported by refuse
		d.refuseKey(path)
	case n.Kind != yaml.ScalarNode:
		what = "is " + describe(n)
	default:
		if what = mistyped(n, into); what == "" {
			what = assign(into, tag, n.Value)
		}
	}
	d.refuseValue(d.at(n.Line), path, what, into, tag)
}

// refuseValue reports what is wrong with a value, if anything is. It never shows a secret one.
func (d *Decoder) refuseValue(at place, path, what string, into reflect.Value, tag reflect.StructTag) {
	if what == "" {
		return
	}
	if isSecret(tag) {
		what = "is not what is allowed"
	}
	d.refuseKey(path)
	d.fault(at, path, what, allowed(into, tag))
}

// shown describes a node, of a secret one only what sort of thing it is.
func shown(n *yaml.Node, tag reflect.StructTag) string {
	if n.Kind != yaml.ScalarNode || !isSecret(tag) {
		return describe(n)
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	default:
		return "a text"
	}
}

// describe names what a node holds.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "the number " + quote(n.Value)
	case "!!bool":
		return "the truth value " + quote(n.Value)
	case "!!timestamp":
		return "the date " + quote(n.Value)
	default:
		return "the text " + quote(n.Value)
	}
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// printable keeps odd keys from breaking a fault's line.
func printable(key string) string {
	if q := strconv.Quote(key); q != `"`+key+`"` || len(key) > 60 || key == "" {
		return quote(key)
	}
	return key
}
