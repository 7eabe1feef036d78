package config

import (
	"strings"
	"unicode"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

const (
	envPrefix  = "FETTLE_"
	configFlag = "config"
)

// AddFlags registers --config and a flag for each scalar key: heartbeat.interval is --heartbeat-interval. keys limits
// them to some; none means all. Values are checked by Load, so that everything wrong is reported together.
func AddFlags(flags *pflag.FlagSet, keys ...string) {
	flags.String(configFlag, DefaultPath, "configuration file")
	c := Default(nil)
	for _, s := range strict.Scalars(&c) {
		if len(keys) > 0 && !contains(keys, s.Path) {
			continue
		}
		flags.Var(&unchecked{text: s.Default, kind: s.Type}, flagName(s.Path), s.Doc)
	}
}

func contains(keys []string, key string) bool {
	for _, k := range keys {
		if k == key {
			return true
		}
	}
	return false
}

// unchecked is a flag's value before Load has looked at it.
type unchecked struct{ text, kind string }

func (u *unchecked) String() string     { return u.text }
func (u *unchecked) Set(s string) error { u.text = s; return nil }
func (u *unchecked) Type() string       { return u.kind }

// overlay is what the environment and the flags say. The zero overlay says nothing.
type overlay struct {
	layers *viper.Viper
	flags  *pflag.FlagSet
}

// newOverlay binds every scalar key by name: viper's own guessing of environment names does not know nested keys.
func newOverlay(flags *pflag.FlagSet) overlay {
	layers := viper.New()
	c := Default(nil)
	paths := []string{configFlag}
	for _, s := range strict.Scalars(&c) {
		paths = append(paths, s.Path)
	}
	for _, path := range paths {
		// Both fail only for an empty name and a nil flag.
		_ = layers.BindEnv(path, envName(path))
		if flag := flags.Lookup(flagName(path)); flag != nil {
			_ = layers.BindPFlag(path, flag)
		}
	}
	return overlay{layers: layers, flags: flags}
}

func (o overlay) configPath() (path string, explicit bool) {
	if o.layers.IsSet(configFlag) {
		return o.layers.GetString(configFlag), true
	}
	return DefaultPath, false
}

// apply sets what the environment or a flag gives over what the file said.
func (o overlay) apply(d *strict.Decoder, c *Config) {
	if o.layers == nil {
		return
	}
	for _, s := range strict.Scalars(c) {
		if !o.layers.IsSet(s.Path) {
			continue
		}
		where := "environment " + envName(s.Path)
		if o.flags.Changed(flagName(s.Path)) {
			where = "flag --" + flagName(s.Path)
		}
		d.Set(s, where, o.layers.GetString(s.Path))
	}
}

// flagName turns heartbeat.leaseDuration into heartbeat-lease-duration.
func flagName(path string) string { return strings.Join(words(path), "-") }

// envName turns heartbeat.leaseDuration into FETTLE_HEARTBEAT_LEASE_DURATION.
func envName(path string) string { return envPrefix + strings.ToUpper(strings.Join(words(path), "_")) }

func words(path string) []string {
	spaced := strings.Map(func(r rune) rune {
		if r == '.' {
			return ' '
		}
		return r
	}, path)
	var b strings.Builder
	for _, r := range spaced {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
