package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// Effective is a configuration, and where each of its values came from.
type Effective struct {
	Config Config
	source func(path string) string
}

// Explain is Load for somebody who wants to know why the configuration is what it is.
func (s Source) Explain() (Effective, error) {
	content, err := s.Read()
	if err != nil {
		return Effective{}, err
	}
	path, _ := s.Path()
	made, err := build(path, content, s.over, s.kinds)
	return Effective{Config: made.config, source: made.decoder.Source}, err
}

// Source is where the value of a key came from: "default", "FILE:LINE", "environment NAME" or "flag --NAME".
func (e Effective) Source(path string) string {
	if where := e.source(path); where != "" {
		return where
	}
	return "default"
}

// WriteYAML writes the configuration as a file that gives the same one, but for secrets, with the source of each value
// as a comment.
func (e Effective) WriteYAML(w io.Writer) error {
	p := yamlPrinter{w: w, source: e.Source}
	for _, s := range strict.Settings(&e.Config) {
		p.setting("", "", s)
	}
	if len(e.Config.Checks) > 0 {
		p.printf("checks:\n")
	}
	for i := range e.Config.Checks {
		c := &e.Config.Checks[i]
		at := checkPath(c.Settings.Name) + "."
		p.printf("- name: %s\n  kind: %s\n", text(c.Settings.Name), text(c.Kind.Name))
		p.mapping = ""
		for _, k := range c.keys() {
			p.setting("  ", at, k.Setting)
		}
	}
	return p.err
}

// yamlPrinter keeps the first error, and the mapping that the keys are in.
type yamlPrinter struct {
	w       io.Writer
	source  func(path string) string
	mapping string
	err     error
}

func (p *yamlPrinter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// setting writes one key. Its path starts with prefix, which the lines do not repeat.
func (p *yamlPrinter) setting(indent, prefix string, s strict.Setting) {
	mapping, name := "", strings.TrimPrefix(s.Path, prefix)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		mapping, name = name[:dot], name[dot+1:]
	}
	if mapping != p.mapping && mapping != "" {
		p.printf("%s%s:\n", indent, mapping)
	}
	p.mapping = mapping
	if mapping != "" {
		indent += "  "
	}
	value, err := inline(s)
	if p.err == nil {
		p.err = err
	}
	p.printf("%s%s: %s # %s\n", indent, name, value, onOneLine(p.source(s.Path)))
}

// inline is a value as YAML on one line.
func inline(s strict.Setting) (string, error) {
	value, err := yaml.Marshal(s.Node(true))
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", s.Path, err)
	}
	return strings.TrimSuffix(string(value), "\n"), nil
}

// text is a name as YAML: one of digits only must not become a number.
func text(name string) string {
	value, _ := yaml.Marshal(name) // a string can be encoded
	return strings.TrimSuffix(string(value), "\n")
}

// onOneLine keeps a source, of which a file's name is a part, from breaking out of its comment.
func onOneLine(source string) string {
	if quoted := strconv.Quote(source); quoted != `"`+source+`"` {
		return quoted
	}
	return source
}

// effectiveKey is the JSON form of one key. It is documented and stable.
type effectiveKey struct {
	Key    string          `json:"key"`
	Value  any             `json:"value"`
	Source effectiveSource `json:"source"`
}

type effectiveSource struct {
	// From is default, file, environment or flag.
	From string `json:"from"`
	// Place is FILE:LINE, the variable's name or the flag's; absent for a default.
	Place string `json:"place,omitempty"`
}

// WriteJSON writes every key with its value and source.
func (e Effective) WriteJSON(w io.Writer) error {
	keys := []effectiveKey{}
	for _, k := range e.Config.keys() {
		keys = append(keys, effectiveKey{Key: k.Path, Value: k.Plain(true), Source: sourceOf(e.source(k.Path))})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(map[string][]effectiveKey{"keys": keys})
}

func sourceOf(where string) effectiveSource {
	if where == "" {
		return effectiveSource{From: "default"}
	}
	for prefix, from := range map[string]string{"environment ": "environment", "flag ": "flag"} {
		if place, found := strings.CutPrefix(where, prefix); found {
			return effectiveSource{From: from, Place: place}
		}
	}
	return effectiveSource{From: "file", Place: where}
}
