package format

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

var stepName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// parser turns the nodes of config.json into a Package.
type parser struct {
	*strict.Decoder
	out *Package
}

// header are the keys of the file that are plain.
type header struct {
	SchemaVersion string   `key:"schema_version" oneof:"v1"`
	Name          string   `key:"package_name"`
	Version       string   `key:"package_version"`
	Expected      []string `key:"expected_config_files"`
}

// step are the keys of a step that are plain.
type step struct {
	Name        string   `key:"name"`
	Path        string   `key:"path"`
	Arguments   []string `key:"arguments"`
	ReturnCodes []int    `key:"returncodes"`
	OnHost      bool     `key:"on_host"`
	Idempotent  bool     `key:"idempotence"`
	UpgradeStep bool     `key:"upgrade_step"`
}

func (p *parser) file(root *yaml.Node) {
	var h header
	modes, others := strict.Key("modes"), strict.Others()
	p.Mapping(root, "", strict.Fields(&h), modes, others)
	p.warn("", others)
	p.demand(root, "", "schema_version", "package_name", "package_version", "expected_config_files", "modes")
	p.out.Name, p.out.Version, p.out.ExpectedConfigFiles = h.Name, h.Version, h.Expected

	if p.Source("package_name") != "" && !plain(h.Name) {
		p.FaultAt(fmt.Sprintf("%q cannot name a folder", h.Name), "a name without slashes", "package_name")
	}
	if _, err := semver.StrictNewVersion(h.Version); err != nil && p.Source("package_version") != "" {
		p.FaultAt(fmt.Sprintf("%q is no semantic version", h.Version), "MAJOR.MINOR.PATCH, e.g. 1.2.3 or 1.2.3-rc1", "package_version")
	}
	for i, name := range h.Expected {
		if !plain(name) {
			p.FaultAt(fmt.Sprintf("%q cannot be the key of a configMap", name), "a file name", fmt.Sprintf("expected_config_files[%d]", i))
		}
	}
	if modes.Node() != nil && p.IsMapping(modes.Node(), "modes") {
		p.modes(modes.Node())
	}
}

func (p *parser) modes(n *yaml.Node) {
	targets, keys := []strict.Target{}, map[Mode]*strict.Raw{}
	for _, mode := range Modes {
		for _, m := range []Mode{mode, mode.Check()} {
			keys[m] = strict.Key(string(m))
			targets = append(targets, keys[m])
		}
	}
	p.Mapping(n, "modes", targets...)
	for _, mode := range Modes {
		for _, m := range []Mode{mode, mode.Check()} {
			at := "modes." + string(m)
			for i, item := range p.Items(keys[m].Node(), at) {
				if at := fmt.Sprintf("%s[%d]", at, i); p.IsMapping(item, at) {
					p.out.Steps[m] = append(p.out.Steps[m], p.step(item, at, m))
				}
			}
		}
	}
	p.together(n, keys)
}

// together holds the modes against each other.
func (p *parser) together(n *yaml.Node, keys map[Mode]*strict.Raw) {
	has := func(m Mode) bool { return keys[m].Node() != nil && len(keys[m].Node().Content) > 0 }
	acts := has(PostInterrupt.Check())
	for _, m := range Modes {
		acts = acts || has(m)
		if has(m) && !has(m.Check()) {
			p.FaultAt("has steps, and nothing checks what they did", fmt.Sprintf("at least one step in %s", m.Check()), "modes."+string(m))
		}
	}
	if !acts {
		p.Fault(n, "modes", "has no steps", "at least one step in apply, config, post-interrupt, uninstall or upgrade")
	}
}

func (p *parser) step(n *yaml.Node, at string, mode Mode) Step {
	var s step
	env, others := strict.Key("env"), strict.Others()
	p.Mapping(n, at, strict.Fields(&s), env, others)
	p.warn(at, others)
	p.demand(n, at, "name", "path", "arguments", "returncodes", "on_host", "idempotence", "upgrade_step")
	given := func(key string) bool { return p.Source(at+"."+key) != "" }

	if given("name") && !stepName.MatchString(s.Name) {
		p.FaultAt(fmt.Sprintf("%q is not allowed", s.Name), "letters, digits, '_', '-' and '.'", at+".name")
	}
	if given("path") && !below(s.Path) {
		p.FaultAt(fmt.Sprintf("%q leads out of the folder of steps", s.Path), "a path below skyhook_dir", at+".path")
	}
	if given("returncodes") && len(s.ReturnCodes) == 0 {
		p.FaultAt("is empty, so the step could never succeed", "at least one number", at+".returncodes")
	}
	if s.UpgradeStep && mode != Upgrade && mode != Upgrade.Check() {
		p.FaultAt("is true outside of an upgrade", "true in upgrade and upgrade-check only", at+".upgrade_step")
	}
	if s.UpgradeStep && len(s.Arguments) > 0 {
		p.FaultAt("has arguments, and an upgrade step is given the two versions as its arguments", "an empty list", at+".arguments")
	}
	return Step{Name: s.Name, Path: path.Clean(s.Path), Arguments: s.Arguments, ReturnCodes: s.ReturnCodes, OnHost: s.OnHost,
		Idempotent: s.Idempotent, UpgradeStep: s.UpgradeStep, Env: p.env(env.Node(), at+".env")}
}

// env reads an object of any names to text.
func (p *parser) env(n *yaml.Node, at string) map[string]string {
	if n == nil || !p.IsMapping(n, at) {
		return nil
	}
	env := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			p.Fault(n.Content[i], at, fmt.Sprintf("%q cannot name a variable", name), "a name without '='")
		case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str":
			p.Fault(value, at+"."+name, "is not text", "text in quotes")
		case strings.ContainsRune(value.Value, 0):
			p.Fault(value, at+"."+name, "holds a NUL", "text")
		default:
			env[name] = value.Value
		}
	}
	return env
}

// demand reports the keys that are missing.
func (p *parser) demand(n *yaml.Node, at string, keys ...string) {
	for _, key := range keys {
		if at != "" {
			key = at + "." + key
		}
		if p.Source(key) == "" {
			p.Fault(n, key, "is missing", "")
		}
	}
}

func (p *parser) warn(at string, others *strict.Rest) {
	for _, key := range others.Names() {
		if at != "" {
			key = at + "." + key
		}
		p.out.Warnings = append(p.out.Warnings, fmt.Sprintf("%s: the key is not known and has no effect", key))
	}
}

// plain reports whether a text can be the name of one file.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// below reports whether a path stays within the folder it is relative to, and names something in it.
func below(p string) bool {
	return p != "" && !path.IsAbs(p) && path.Clean(p) != "." && !strings.ContainsRune(p, 0) &&
		!slices.Contains(strings.Split(p, "/"), "..")
}
