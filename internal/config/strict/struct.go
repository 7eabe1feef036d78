package strict

import (
	"fmt"
	"reflect"
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

// Scalar is one scalar key of a struct.
type Scalar struct {
	// Path of the key, e.g. "heartbeat.interval".
	Path string
	// Type is a word for the value's type: "duration", "string", "bool" or "int".
	Type string
	// Default is the value the struct holds now, as it is written.
	Default string
	Doc     string

	field reflect.Value
	tag   reflect.StructTag
}

// Scalars lists the scalar keys of a struct and of the structs in it, in the order of the fields.
func Scalars(pointer any) []Scalar { return scalars("", reflect.ValueOf(pointer).Elem()) }

func scalars(prefix string, v reflect.Value) []Scalar {
	var found []Scalar
	for i := range v.NumField() {
		field, tag := v.Field(i), v.Type().Field(i).Tag
		name := tag.Get("key")
		switch {
		case name == "" || isList(field):
		case isStruct(field):
			found = append(found, scalars(join(prefix, name), field)...)
		default:
			s := Scalar{Path: join(prefix, name), Type: field.Kind().String(), Default: fmt.Sprint(field.Interface()), Doc: tag.Get("doc"), field: field, tag: tag}
			if field.Type() == durationType {
				s.Type = "duration"
			}
			found = append(found, s)
		}
	}
	return found
}

// Set gives a scalar a value from another source than the file. where names the source, e.g. "flag --node-name".
func (d *Decoder) Set(s Scalar, where, raw string) {
	at := place{where: where}
	d.places[s.Path] = at
	if what := assign(s.field, s.tag, raw); what != "" {
		d.fault(at, s.Path, what, allowed(s.field, s.tag))
	}
}
