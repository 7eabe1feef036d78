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

// keyed is a field of a struct that has a key.
type keyed struct {
	key   string
	value reflect.Value
	tag   reflect.StructTag
}

// keyedIn lists those of a struct in their order. Those of a struct that is embedded in it are its own.
func keyedIn(v reflect.Value) []keyed {
	var all []keyed
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch key := field.Tag.Get("key"); {
		case key != "":
			all = append(all, keyed{key: key, value: v.Field(i), tag: field.Tag})
		case field.Anonymous && isStruct(v.Field(i)):
			all = append(all, keyedIn(v.Field(i))...)
		}
	}
	return all
}

func (d *Decoder) validate(prefix string, v reflect.Value) {
	for _, f := range keyedIn(v) {
		if isStruct(f.value) {
			d.validate(join(prefix, f.key), f.value)
		}
	}
	for _, f := range keyedIn(v) {
		for j := 0; isList(f.value) && j < f.value.Len() && isStruct(f.value.Index(j)); j++ {
			d.validate(fmt.Sprintf("%s[%d]", join(prefix, f.key), j), f.value.Index(j))
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
	if d.more > 0 {
		return true // perhaps
	}
	for _, f := range d.faults {
		for _, k := range keys {
			if rest, found := strings.CutPrefix(f.Key, join(prefix, k)); found && (rest == "" || rest[0] == '[' || rest[0] == '.') {
				return true
			}
		}
	}
	return false
}

// given finds where the keys were given: the first that came from elsewhere than the file, since a file may be right by
// itself, else the first that the file holds, else what they are in, else the file.
func (d *Decoder) given(prefix string, keys []string) (string, place) {
	for _, fromFile := range []bool{false, true} {
		for _, k := range keys {
			if at, ok := d.places[join(prefix, k)]; ok && (at.line > 0) == fromFile {
				return join(prefix, k), at
			}
		}
	}
	key := prefix
	if len(keys) > 0 {
		key = join(prefix, keys[0])
	}
	for outer := prefix; outer != ""; outer = outer[:max(0, strings.LastIndexAny(outer, ".["))] {
		if at, ok := d.places[outer]; ok {
			return key, at
		}
	}
	return key, place{where: d.file}
}
