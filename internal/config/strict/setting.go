package strict

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Setting is one key of a struct.
type Setting struct {
	// Path of the key, e.g. "heartbeat.interval".
	Path string
	// Type is a word for the value's type: "duration", "string", "bool", "int" or "list".
	Type string
	// Default is what Written gives, or says in words what the default depends on.
	Default string
	// Allowed says what the key takes.
	Allowed string
	Doc     string
	// Secret : the value is not to be shown.
	Secret bool
	// Restart : a change takes effect at the next start of the program.
	Restart bool

	field reflect.Value
	tag   reflect.StructTag
}

// Settings lists the keys of a struct and of the structs in it, in the order of the fields.
func Settings(pointer any) []Setting { return SettingsAt("", pointer) }

// SettingsAt lists them as keys under a prefix.
func SettingsAt(prefix string, pointer any) []Setting {
	return settings(prefix, reflect.ValueOf(pointer).Elem(), false, false)
}

// Scalars lists those that are not lists.
func Scalars(pointer any) []Setting {
	return slices.DeleteFunc(Settings(pointer), Setting.IsList)
}

// IsList : the value is a list.
func (s Setting) IsList() bool { return isList(s.field) }

// Mappings : the value is a list of mappings.
func (s Setting) Mappings() bool {
	return isList(s.field) && s.field.Type().Elem().Kind() == reflect.Struct
}

func settings(prefix string, v reflect.Value, secret, restart bool) []Setting {
	var found []Setting
	for _, f := range keyedIn(v) {
		name, field, tag := f.key, f.value, f.tag
		secret, restart := secret || isSecret(tag), restart || tag.Get("restart") == "true"
		switch {
		case isStruct(field):
			found = append(found, settings(join(prefix, name), field, secret, restart)...)
		default:
			found = append(found, Setting{
				Path: join(prefix, name), Type: typeName(field), Default: defaultOf(field, tag), Allowed: allowedIn(field, tag),
				Doc: tag.Get("doc"), Secret: secret, Restart: restart, field: field, tag: tag,
			})
		}
	}
	return found
}

func defaultOf(field reflect.Value, tag reflect.StructTag) string {
	if words := tag.Get("default"); words != "" {
		return words
	}
	return written(field)
}

// Written is the value that the struct holds now, as it is written; that of a list has commas between its items.
func (s Setting) Written() string { return written(s.field) }

func written(field reflect.Value) string {
	if !isList(field) {
		return fmt.Sprint(field.Interface())
	}
	items := make([]string, field.Len())
	for i := range items {
		items[i] = fmt.Sprint(field.Index(i).Interface())
	}
	return strings.Join(items, ", ")
}

// allowedIn is what a field takes, or each item of a list.
func allowedIn(field reflect.Value, tag reflect.StructTag) string {
	if !isList(field) {
		return allowed(field, tag)
	}
	item := reflect.New(field.Type().Elem()).Elem()
	if !isStruct(item) {
		return "each: " + allowed(item, tag)
	}
	var keys []string
	for _, s := range settings("", item, false, false) {
		keys = append(keys, s.Path)
	}
	return "each: a mapping of " + strings.Join(keys, ", ")
}

func typeName(field reflect.Value) string {
	if field.Type() == durationType {
		return "duration"
	}
	if isList(field) {
		return "list"
	}
	if isText(field) {
		return "string"
	}
	return field.Kind().String()
}

// Set gives a key a value from another source than the file. where names the source, e.g. "flag --node-name". A list is
// written with commas between its items, or as YAML in brackets.
func (d *Decoder) Set(s Setting, where, raw string) {
	at := place{where: where}
	maps.DeleteFunc(d.places, func(path string, _ place) bool { return strings.HasPrefix(path, s.Path+"[") })
	d.places[s.Path] = at
	switch {
	case !isList(s.field):
		d.refuseValue(at, s.Path, assignOrKeep(s.field, s.tag, raw), s.field, s.tag)
	case strings.HasPrefix(strings.TrimSpace(raw), "["):
		d.setInline(s, where, raw)
	case s.Mappings():
		d.refuseKey(s.Path)
		d.fault(at, s.Path, "is not a list of mappings", "mappings in brackets, e.g. [{name: a, value: b}]")
	default:
		items := strings.Split(raw, ",")
		list := reflect.MakeSlice(s.field.Type(), len(items), len(items))
		for i, item := range items {
			d.refuseValue(at, fmt.Sprintf("%s[%d]", s.Path, i), assign(list.Index(i), s.tag, strings.TrimSpace(item)), list.Index(i), s.tag)
		}
		s.field.Set(list)
	}
}

// setInline decodes a list that is written as YAML.
func (d *Decoder) setInline(s Setting, where, raw string) {
	inner := &Decoder{file: where, inline: true, places: map[string]place{}, refused: d.refused}
	if root := inner.Document([]byte("value: " + raw)); root != nil && len(root.Content) == 2 {
		inner.value(root.Content[1], s.Path, s.field, s.tag)
	}
	for _, f := range inner.faults {
		if f.Key == "" {
			f.Key = s.Path
			d.refuseKey(s.Path)
		}
		d.fault(place{where: where}, f.Key, f.What, f.Allowed)
	}
	d.more += inner.more
}

// Copy gives the key the value that it has in another struct of the same type.
func (s Setting) Copy(from Setting) { s.field.Set(from.field) }

// Hidden stands for a secret value where a configuration is printed.
const Hidden = "(hidden)"

// Plain is the value as text, truth value, whole number, or list or mapping of them: what JSON and YAML can hold. With
// hide, secrets are Hidden.
func (s Setting) Plain(hide bool) any { return plain(s.field, hide && s.Secret, hide) }

func plain(v reflect.Value, hidden, hide bool) any {
	switch {
	case isList(v):
		items := make([]any, v.Len())
		for i := range items {
			items[i] = plain(v.Index(i), hidden, hide)
		}
		return items
	case isStruct(v):
		keys := map[string]any{}
		for _, f := range keyedIn(v) {
			keys[f.key] = plain(f.value, hidden || hide && isSecret(f.tag), hide)
		}
		return keys
	case hidden && !v.IsZero():
		return Hidden
	case isText(v), v.Type() == durationType:
		return fmt.Sprint(v.Interface())
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.Kind() == reflect.Int:
		return v.Int()
	default:
		return v.String()
	}
}

// Node is the value as YAML on one line that Mapping would decode to it, but for secrets with hide.
func (s Setting) Node(hide bool) *yaml.Node { return nodeOf(s.Plain(hide)) }

// nodeOf makes a node of what plain gives. Texts with unusual characters are quoted, so that they stay on their line.
func nodeOf(value any) *yaml.Node {
	switch v := value.(type) {
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range v {
			n.Content = append(n.Content, nodeOf(item))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, nodeOf(key), nodeOf(v[key]))
		}
		return n
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.ContainsFunc(v, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(v)}
	}
}
