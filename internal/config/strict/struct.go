package strict

import (
	"fmt"
	"reflect"
	"slices"
)

// Validator is a struct that knows what only several of its keys together can get wrong.
type Validator interface {
	// Validate calls fault for each such thing, with all keys that have a part in it, by their names within the struct; that
	// of an item of a list is e.g. "env[2]". The fault is reported at the first of them that was configured at all, and not
	// at all where the value of one of them was refused.
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
	if asks, ok := v.Addr().Interface().(Validator); ok {
		asks.Validate(func(what, allowed string, keys ...string) {
			// A value that was refused left another behind, and comparing that would mislead.
			if slices.ContainsFunc(keys, func(k string) bool { return d.isRefused(join(prefix, k)) }) {
				return
			}
			key, at := d.given(prefix, keys)
			d.fault(at, key, what, allowed)
		})
	}
}

// given finds where the keys were given: the first that came from elsewhere than the file, since a file may be right by
// itself, else the first that the file holds, else what they are in, else the file. Where the items of a list are not
// placed one by one, they are where the list is.
func (d *Decoder) given(prefix string, keys []string) (string, place) {
	for _, fromFile := range []bool{false, true} {
		for _, k := range keys {
			path := join(prefix, k)
			at, ok := d.places[path]
			if list, item := listOf(path); !ok && item {
				at, ok = d.places[list]
			}
			if ok && (at.line > 0) == fromFile {
				return path, at
			}
		}
	}
	key := prefix
	if len(keys) > 0 {
		key = join(prefix, keys[0])
	}
	for around := prefix; around != ""; around = outer(around) {
		if at, ok := d.places[around]; ok {
			return key, at
		}
	}
	return key, place{where: d.file}
}
