package strict_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

type settings struct {
	Name   string        `key:"name" doc:"the name"`
	Every  time.Duration `key:"every" doc:"how often" min:"1s" max:"1h"`
	Count  int           `key:"count" min:"1" max:"10"`
	On     bool          `key:"on"`
	Colour string        `key:"colour" oneof:"red,green"`
	Dir    string        `key:"dir" is:"abspath"`
	Dirs   []string      `key:"dirs" is:"abspath"`
	Nested nested        `key:"nested"`
	hidden string        //nolint:unused // a field without a key is nobody's business
}

type nested struct {
	Low  int `key:"low"`
	High int `key:"high"`
}

func (n nested) Validate(fault func(what, allowed string, keys ...string)) {
	if n.Low > n.High {
		fault("low is above high", "low <= high", "low", "high")
	}
}

func decode(content string) (settings, error) {
	s := settings{Name: "default", Every: time.Minute, Count: 3, Dirs: []string{"/a"}, Nested: nested{High: 5}}
	d := strict.NewDecoder("f.yaml")
	if root := d.Document([]byte(content)); root != nil {
		d.Mapping(root, "", strict.Fields(&s))
	}
	d.Validate(&s)
	return s, d.Err()
}

func TestDecode(t *testing.T) {
	got, err := decode(`---
name: "7"
every: 1m30s
count: 10
on: true
colour: green
dir: /var/lib
dirs: [/x, /y]
nested:
  low: 4
`)
	if err != nil {
		t.Fatal(err)
	}
	want := settings{Name: "7", Every: 90 * time.Second, Count: 10, On: true, Colour: "green", Dir: "/var/lib", Dirs: []string{"/x", "/y"}, Nested: nested{Low: 4, High: 5}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNothingConfiguredLeavesDefaults(t *testing.T) {
	for _, content := range []string{"", "\n", "# only a comment\n", "---\n", "null\n", "{}\n", "\ufeff", "nested:\ndirs:\n", "nested: {}\n"} {
		got, err := decode(content)
		if err != nil {
			t.Errorf("%q: %v", content, err)
		}
		if got.Name != "default" || got.Nested.High != 5 || len(got.Dirs) != 1 {
			t.Errorf("%q: %+v", content, got)
		}
	}
	if got, err := decode("dirs: []\n"); err != nil || len(got.Dirs) != 0 {
		t.Errorf("an empty list is a list: %+v %v", got, err)
	}
}

func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          []string
	}{
		{name: "an unknown key, with a guess", content: "name: a\ncolor: red\n", want: []string{
			`f.yaml:2: color: unknown key "color"; did you mean "colour"? (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "an unknown key in another case", content: "NAME: a\n", want: []string{
			`f.yaml:1: NAME: unknown key "NAME"; did you mean "name"? (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "an unknown key that resembles nothing", content: "weather: a\n", want: []string{
			`f.yaml:1: weather: unknown key "weather" (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "a nested unknown key", content: "nested:\n  lov: 1\n", want: []string{
			`f.yaml:2: nested.lov: unknown key "lov"; did you mean "low"? (allowed: low, high)`}},
		{name: "an empty key", content: "\"\": a\n", want: []string{
			`f.yaml:1: "": unknown key "" (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "a key twice", content: "name: a\nname: b\n", want: []string{
			`f.yaml:2: name: is set a second time; the first is in line 1`}},
		{name: "a number for text", content: "name: 7\n", want: []string{
			`f.yaml:1: name: is the number "7", not text; put it in quotes if it is meant (allowed: text)`}},
		{name: "a date for text", content: "name: 2030-01-01\n", want: []string{
			`f.yaml:1: name: is the date "2030-01-01", not text; put it in quotes if it is meant (allowed: text)`}},
		{name: "a mapping for text", content: "name: {a: b}\n", want: []string{`f.yaml:1: name: is a mapping (allowed: text)`}},
		{name: "nothing for text", content: "name:\n", want: []string{`f.yaml:1: name: has no value (allowed: text)`}},
		{name: "a duration without a unit", content: "every: 30\n", want: []string{
			`f.yaml:1: every: "30" has no unit (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, from 1s to 1h)`}},
		{name: "a duration in words", content: "every: often\n", want: []string{
			`f.yaml:1: every: "often" is not a duration (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, from 1s to 1h)`}},
		{name: "a duration out of bounds", content: "every: -5s\n", want: []string{
			`f.yaml:1: every: "-5s" is too small (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, from 1s to 1h)`}},
		{name: "a number out of bounds", content: "count: 11\n", want: []string{`f.yaml:1: count: "11" is too large (allowed: a whole number, from 1 to 10)`}},
		{name: "a number larger than any", content: "count: 99999999999999999999\n", want: []string{`f.yaml:1: count: is the number "99999999999999999999" (allowed: a whole number, from 1 to 10)`}},
		{name: "a fraction", content: "count: 1.5\n", want: []string{`f.yaml:1: count: is the number "1.5" (allowed: a whole number, from 1 to 10)`}},
		{name: "a number in quotes", content: "count: '3'\n", want: []string{`f.yaml:1: count: is the text "3" (allowed: a whole number, from 1 to 10)`}},
		{name: "yes for true", content: "on: yes\n", want: []string{`f.yaml:1: on: is the text "yes" (allowed: true or false)`}},
		{name: "a value that is not one of the list", content: "colour: blue\n", want: []string{`f.yaml:1: colour: "blue" is not one of the allowed values (allowed: red, green)`}},
		{name: "a relative path", content: "dir: var/lib\n", want: []string{`f.yaml:1: dir: "var/lib" is not an absolute path (allowed: an absolute path without "..")`}},
		{name: "a path that climbs, in a list", content: "dirs:\n- /a\n- /a/../b\n", want: []string{`f.yaml:3: dirs[1]: "/a/../b" is not an absolute path (allowed: an absolute path without "..")`}},
		{name: "a single value for a list", content: "dirs: /a\n", want: []string{`f.yaml:1: dirs: is the text "/a" (allowed: a list)`}},
		{name: "text for a mapping", content: "nested: low\n", want: []string{`f.yaml:1: nested: is the text "low" (allowed: a mapping of keys to values)`}},
		{name: "keys that contradict each other", content: "nested:\n  high: 3\n  low: 4\n", want: []string{`f.yaml:3: nested.low: low is above high (allowed: low <= high)`}},
		{name: "a key that contradicts a default is named itself", content: "name: a\nnested:\n  high: -1\n", want: []string{`f.yaml:3: nested.high: low is above high (allowed: low <= high)`}},
		{name: "a contradiction is not judged on a value that was refused", content: "nested:\n  high: a\n  low: 9\n", want: []string{`f.yaml:2: nested.high: is the text "a" (allowed: a whole number)`}},
		{name: "a list as the root", content: "- a\n", want: []string{`f.yaml:1: the file holds a list (allowed: a mapping of keys to values)`}},
		{name: "text as the root", content: "hello\n", want: []string{`f.yaml:1: the file holds the text "hello" (allowed: a mapping of keys to values)`}},
		{name: "two documents", content: "name: a\n---\nname: b\n", want: []string{`f.yaml:2: a second YAML document starts here (allowed: one document)`}},
		{name: "not YAML", content: "name: a\n  b: [\n", want: []string{`f.yaml:2: not valid YAML: mapping values are not allowed in this context`}},
		{name: "binary", content: "\x00\x01", want: []string{`f.yaml: not valid YAML: control characters are not allowed`}},
		{name: "a list as a key", content: "? [a, b]\n: c\n", want: []string{`f.yaml:1: a key is a list (allowed: text)`}},
		{name: "an anchor and its alias", content: "name: &n a\ndir: *n\n", want: []string{
			`f.yaml:1: anchor &n: anchors are not supported (allowed: the value alone)`, `f.yaml:2: alias *n: aliases are not supported (allowed: the value written out)`}},
		{name: "a merge key", content: "<<: {name: a}\n", want: []string{`f.yaml:1: <<: unknown key "<<" (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "a tag", content: "name: !!str 7\n", want: []string{`f.yaml:1: tag "!!str": tags are not supported (allowed: the value alone)`}},
		{name: "a key with line breaks stays on one line", content: "\"a\\nb\": 1\n", want: []string{
			`f.yaml:1: "a\nb": unknown key "a\nb" (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
		{name: "everything at once, by line", content: "nested: 1\nname: 2\ncount: 0\nfoo: 1\n", want: []string{
			`f.yaml:1: nested: is the number "1" (allowed: a mapping of keys to values)`,
			`f.yaml:2: name: is the number "2", not text; put it in quotes if it is meant (allowed: text)`,
			`f.yaml:3: count: "0" is too small (allowed: a whole number, from 1 to 10)`,
			`f.yaml:4: foo: unknown key "foo" (allowed: name, every, count, on, colour, dir, dirs, nested)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := decode(tc.content)
			var faults strict.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("no faults: %v", err)
			}
			if got := strings.Split(faults.Error(), "\n"); !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

func TestEveryFaultOfAFileHasItsLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", "three", "four", "five", "six"}), 1, 6, rapid.ID).Draw(t, "keys")
		_, err := decode(strings.Join(keys, ": x\n") + ": x\n")
		var faults strict.Faults
		if !errors.As(err, &faults) || len(faults) != len(keys) {
			t.Fatalf("%d unknown keys, faults %v", len(keys), err)
		}
		for i, f := range faults {
			if f.Key != keys[i] || f.Where != fmt.Sprintf("f.yaml:%d", i+1) {
				t.Fatalf("fault %d is %s", i, f)
			}
		}
	})
}
