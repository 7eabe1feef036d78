package strict

import (
	"encoding"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func isText(v reflect.Value) bool { return reflect.PointerTo(v.Type()).Implements(textType) }

func isStruct(v reflect.Value) bool { return v.Kind() == reflect.Struct && !isText(v) }

func isList(v reflect.Value) bool { return v.Kind() == reflect.Slice && !isText(v) }

// mistyped says what is wrong with the YAML type of a scalar; "" when it fits the field.
func mistyped(n *yaml.Node, into reflect.Value) string {
	tag := n.ShortTag()
	fits := tag == "!!str"
	switch {
	case tag == "!!null":
		return "has no value"
	case isText(into):
		fits = tag == "!!str" || tag == "!!int" || tag == "!!float"
	case into.Type() == durationType:
		if tag == "!!int" || tag == "!!float" {
			return fmt.Sprintf("%s has no unit", quote(n.Value))
		}
	case into.Kind() == reflect.Bool:
		fits = tag == "!!bool"
	case into.Kind() == reflect.Int:
		fits = tag == "!!int"
	case into.Kind() == reflect.String && !fits:
		return "is " + describe(n) + ", not text; put it in quotes if it is meant"
	}
	if !fits {
		return "is " + describe(n)
	}
	return ""
}

// isSecret : the value is not shown, neither in faults nor where a configuration is printed.
func isSecret(tag reflect.StructTag) bool { return tag.Get("secret") == "true" }

// assignOrKeep is assign for a key, which may always be given the value that it has already: a default may lie outside
// of what is allowed to others, such as no path where only absolute ones are.
func assignOrKeep(into reflect.Value, tag reflect.StructTag, raw string) string {
	same := reflect.New(into.Type()).Elem()
	if parse(same, raw) == "" && reflect.DeepEqual(same.Interface(), into.Interface()) {
		return ""
	}
	return assign(into, tag, raw)
}

// assign parses a scalar and keeps it if it is allowed, else it says what is wrong.
func assign(into reflect.Value, tag reflect.StructTag, raw string) string {
	if !utf8.ValidString(raw) {
		return "is not valid UTF-8"
	}
	parsed := reflect.New(into.Type())
	if err := parse(parsed.Elem(), raw); err != "" {
		return err
	}
	if what := bounded(parsed.Elem(), tag, raw); what != "" {
		return what
	}
	into.Set(parsed.Elem())
	return ""
}

func parse(into reflect.Value, raw string) string {
	switch {
	case isText(into):
		if err := into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(raw)); err != nil {
			return fmt.Sprintf("%s %v", quote(raw), err)
		}
	case into.Type() == durationType:
		parsed, err := time.ParseDuration(raw)
		if err != nil {
			return fmt.Sprintf("%s is not a duration", quote(raw))
		}
		into.SetInt(int64(parsed))
	case into.Kind() == reflect.String:
		into.SetString(raw)
	case into.Kind() == reflect.Bool:
		parsed, err := strconv.ParseBool(raw)
		if err != nil {
			return fmt.Sprintf("%s is not a truth value", quote(raw))
		}
		into.SetBool(parsed)
	case into.Kind() == reflect.Int:
		parsed, err := strconv.ParseInt(raw, 10, 32)
		if err != nil {
			return fmt.Sprintf("%s is not a whole number", quote(raw))
		}
		into.SetInt(parsed)
	default:
		panic(fmt.Sprintf("strict: a field of type %s cannot be configured", into.Type()))
	}
	return ""
}

// bounded holds a parsed value against the field's tags.
func bounded(v reflect.Value, tag reflect.StructTag, raw string) string {
	if list := tag.Get("oneof"); list != "" && !slices.Contains(strings.Split(list, ","), raw) {
		return fmt.Sprintf("%s is not one of the allowed values", quote(raw))
	}
	if tag.Get("is") == "abspath" && !cleanAbsolute(raw) {
		return fmt.Sprintf("%s is not an absolute path", quote(raw))
	}
	if least := tag.Get("min"); least != "" && v.Int() < bound(v, least) {
		return fmt.Sprintf("%s is too small", quote(raw))
	}
	if most := tag.Get("max"); most != "" && v.Int() > bound(v, most) {
		return fmt.Sprintf("%s is too large", quote(raw))
	}
	return ""
}

// bound reads a min or max tag in the form of the field it belongs to.
func bound(field reflect.Value, tag string) int64 {
	v := reflect.New(field.Type()).Elem()
	if what := parse(v, tag); what != "" {
		panic("strict: bound " + what)
	}
	return v.Int()
}

func cleanAbsolute(p string) bool {
	return path.IsAbs(p) && !strings.ContainsRune(p, 0) && !slices.Contains(strings.Split(p, "/"), "..")
}

// allowed says what a field takes.
func allowed(v reflect.Value, tag reflect.StructTag) string {
	var text string
	switch {
	case tag.Get("oneof") != "":
		return strings.ReplaceAll(tag.Get("oneof"), ",", ", ")
	case tag.Get("is") == "abspath":
		return `an absolute path without ".."`
	case v.Type() == durationType:
		text = "a duration with a unit, e.g. 500ms, 30s or 2m"
	case isText(v):
		text = "text"
		if d, ok := v.Addr().Interface().(interface{ Allowed() string }); ok {
			text = d.Allowed()
		}
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		text = "a whole number"
	default:
		return "text"
	}
	least, most := tag.Get("min"), tag.Get("max")
	switch {
	case least != "" && most != "":
		return text + ", from " + least + " to " + most
	case least != "":
		return text + ", at least " + least
	case most != "":
		return text + ", at most " + most
	}
	return text
}
