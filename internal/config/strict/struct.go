package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Validator is a struct that knows what only several of its keys together can get wrong.
type Validator interface {
	// Validate calls fault for each such thing. The fault is reported at the first of the keys, given by their names
	// within the struct, that was configured at all.
	Validate(fault func(what, allowed string, keys ...string))
}

// Validate asks the struct and the structs in it.
func (d *Decoder) Validate(pointer any) { d.validate("", reflect.ValueOf(pointer).Elem()) }

// ValidateAt asks structs whose keys were decoded under a prefix.
func (d *Decoder) ValidateAt(prefix string, pointers ...any) {
	for _, p := range pointers {
		d.validate(prefix, reflect.ValueOf(p).Elem())
	}
}

func (d *Decoder) validate(prefix string, v reflect.Value) {
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("key"); name != "" && isStruct(v.Field(i)) {
			d.validate(join(prefix, name), v.Field(i))
		}
	}
	asks, ok := v.Addr().Interface().(Validator)
	if !ok || d.refused(prefix, fields{v}.keys()) {
		return // a value that was refused left its default behind, and comparing that would mislead
	}
	asks.Validate(func(what, allowed string, keys ...string) {
		key, at := d.given(prefix, keys)
		d.fault(at, key, what, allowed)
	})
}

// refused says whether a value of one of the keys, or a part of it, was at fault.
func (d *Decoder) refused(prefix string, keys []string) bool {
	for _, f := range d.faults {
		for _, k := range keys {
			if rest, found := strings.CutPrefix(f.Key, join(prefix, k)); found && (rest == "" || rest[0] == '[' || rest[0] == '.') {
				return true
			}
		}
	}
	return false
}

// given finds where the first configured one of the keys, else their struct, else the file, is.
func (d *Decoder) given(prefix string, keys []string) (string, place) {
	for _, k := range keys {
		if at, ok := d.places[join(prefix, k)]; ok {
			return join(prefix, k), at
		}
	}
	key := prefix
	if len(keys) > 0 {
		key = join(prefix, keys[0])
	}
	if at, ok := d.places[prefix]; ok {
		return key, at
	}
	return key, place{where: d.file}
}

// Setting is one key of a struct.
type Setting struct {
	// Path of the key, e.g. "heartbeat.interval".
	Path string
	// Type is a word for the value's type: "duration", "string", "bool", "int" or "list".
	Type string
	// Default is the value the struct holds now, as it is written; that of a list has commas between its items.
	Default string
	Doc     string

	field reflect.Value
	tag   reflect.StructTag
}

// Settings lists the keys of a struct and of the structs in it, in the order of the fields.
func Settings(pointer any) []Setting { return settings("", reflect.ValueOf(pointer).Elem()) }

// Scalars lists those that are not lists; they can be Set.
func Scalars(pointer any) []Setting {
	return slices.DeleteFunc(Settings(pointer), func(k Setting) bool { return isList(k.field) })
}

func settings(prefix string, v reflect.Value) []Setting {
	var found []Setting
	for i := range v.NumField() {
		field, tag := v.Field(i), v.Type().Field(i).Tag
		name := tag.Get("key")
		switch {
		case name == "":
		case isStruct(field):
			found = append(found, settings(join(prefix, name), field)...)
		default:
			found = append(found, Setting{Path: join(prefix, name), Type: typeName(field), Default: written(field), Doc: tag.Get("doc"), field: field, tag: tag})
		}
	}
	return found
}

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

// Set gives a scalar a value from another source than the file. where names the source, e.g. "flag --node-name".
func (d *Decoder) Set(s Setting, where, raw string) {
	at := place{where: where}
	d.places[s.Path] = at
	if what := assign(s.field, s.tag, raw); what != "" {
		d.fault(at, s.Path, what, allowed(s.field, s.tag))
	}
}
