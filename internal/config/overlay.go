package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

const (
	envPrefix      = "FETTLE_"
	configFlag     = "config"
	configVariable = "FETTLE_CONFIG"
)

// AddFlags registers --config and a flag for each scalar key: heartbeat.interval is --heartbeat-interval. keys limits
// them to some; none means all. Values are checked by Load, so that everything wrong is reported together.
func AddFlags(flags *pflag.FlagSet, keys ...string) {
	flags.String(configFlag, DefaultPath, "configuration file")
	c := Default(nil)
	for _, s := range strict.Scalars(&c) {
		if len(keys) > 0 && !slices.Contains(keys, s.Path) {
			continue
		}
		flags.Var(&unchecked{text: s.Default, kind: s.Type}, flagName(s.Path), s.Doc)
	}
}

// unchecked is a flag's value before Load has looked at it.
type unchecked struct{ text, kind string }

func (u *unchecked) String() string     { return u.text }
func (u *unchecked) Set(s string) error { u.text = s; return nil }
func (u *unchecked) Type() string       { return u.kind }

// key is one key of the configuration, with the names that it has elsewhere.
type key struct {
	strict.Setting
	variable string
	flag     string // empty: it has none
}

// keys lists all keys but the names and kinds of checks, which say what the others are about.
func (c *Config) keys() []key {
	var all []key
	for _, s := range strict.Settings(c) {
		k := key{Setting: s, variable: variableOf(s.Path)}
		if !s.IsList() {
			k.flag = flagName(s.Path)
		}
		all = append(all, k)
	}
	for i := range c.Checks {
		all = append(all, c.Checks[i].keys()...)
	}
	return all
}

// keys lists the keys of one check.
func (c *Check) keys() []key {
	at := checkPath(c.Settings.Name)
	var all []key
	for _, pointer := range []any{&c.Settings, c.Options} {
		for _, s := range strict.SettingsAt(at, pointer) {
			if s.Path != at+".name" && s.Path != at+".kind" {
				all = append(all, key{Setting: s, variable: variableOf(s.Path)})
			}
		}
	}
	return all
}

// overlay is what the environment and the flags say. The zero overlay says nothing.
type overlay struct {
	flags *pflag.FlagSet
	// environment has the variables that start with FETTLE_ and are not empty.
	environment map[string]string
	// ignored are sources, in the form of strict.Fault.Where, that are taken as not given.
	ignored map[string]bool
}

// newOverlay takes flags and environment, as of os.Environ.
func newOverlay(flags *pflag.FlagSet, environ []string) overlay {
	o := overlay{flags: flags, environment: map[string]string{}, ignored: map[string]bool{}}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, envPrefix) && value != "" {
			o.environment[name] = value
		}
	}
	return o
}

func (o overlay) configPath() (path string, explicit bool) {
	if o.flags != nil {
		if flag := o.flags.Lookup(configFlag); flag != nil && flag.Changed {
			return flag.Value.String(), true
		}
	}
	if path := o.environment[configVariable]; path != "" {
		return path, true
	}
	return DefaultPath, false
}

// given is what is said of a key, and where; where is empty when nothing is.
func (o overlay) given(k key) (raw, where string) {
	if k.flag != "" && o.flags != nil {
		where := "flag --" + k.flag
		if flag := o.flags.Lookup(k.flag); flag != nil && flag.Changed && !o.ignored[where] {
			return flag.Value.String(), where
		}
	}
	if value, found := o.environment[k.variable]; found && !o.ignored[variablePlace(k.variable)] {
		return value, variablePlace(k.variable)
	}
	return "", ""
}

// variablePlace is an environment variable as the place of a fault.
func variablePlace(name string) string { return "environment " + name }

// apply sets what the environment or a flag gives over what the file said, and reports variables that set nothing.
func (o overlay) apply(d *strict.Decoder, c *Config) {
	sets := map[string]string{} // variable to key
	for _, k := range c.keys() {
		if raw, where := o.given(k); where != "" {
			d.Set(k.Setting, where, raw)
		}
		if first, taken := sets[k.variable]; taken && o.environment[k.variable] != "" && !o.ignored[variablePlace(k.variable)] {
			d.FaultAt(fmt.Sprintf("the variable sets %s too", first), "another name for one of the checks", k.Path)
		}
		sets[k.variable] = k.Path
	}
	o.refuseUnknown(d, sets)
}

// flagName turns heartbeat.leaseDuration into heartbeat-lease-duration.
func flagName(path string) string { return strings.Join(words(path), "-") }

// variableOf turns heartbeat.leaseDuration into FETTLE_HEARTBEAT_LEASE_DURATION, and checks[cni-config].binDirs into
// FETTLE_CHECKS_CNI_CONFIG_BIN_DIRS.
func variableOf(path string) string {
	return envPrefix + strings.ToUpper(strings.Join(words(path), "_"))
}

// words takes a key path apart at dots, brackets, dashes and capital letters; several capitals in a row are one word.
func words(path string) []string {
	var b strings.Builder
	capital := false
	for _, r := range path {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case unicode.IsUpper(r) && !capital:
			b.WriteByte(' ')
		}
		capital = unicode.IsUpper(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
