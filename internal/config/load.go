package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
)

// Load reads the configuration of a command whose flags AddFlags registered: the file that --config or FETTLE_CONFIG
// names, else the one at DefaultPath if it exists, and over it the environment and the flags. What is wrong with the
// values comes back as one strict.Faults that lists everything.
func Load(flags *pflag.FlagSet, kinds []probes.Kind) (Config, error) {
	over := newOverlay(flags)
	path, explicit := over.configPath()
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !explicit:
		content = nil
	case err != nil:
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return build(path, content, over, kinds)
}

// LoadFile reads a configuration file alone, as `config validate` does: no environment and no flags.
func LoadFile(path string, kinds []probes.Kind) (Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, content, kinds)
}

// Parse reads the content of a configuration file. path is only for messages.
func Parse(path string, content []byte, kinds []probes.Kind) (Config, error) {
	return build(path, content, overlay{}, kinds)
}

func build(path string, content []byte, over overlay, kinds []probes.Kind) (Config, error) {
	c := Default(kinds)
	d := strict.NewDecoder(path)
	if root := d.Document(content); root != nil {
		checks := strict.Key("checks")
		d.Mapping(root, "", strict.Fields(&c), checks)
		c.mergeChecks(d, checks.Node())
	}
	over.apply(d, &c)
	d.Validate(&c)
	for i := range c.Checks {
		d.ValidateAt(checkPath(c.Checks[i].Settings.Name), &c.Checks[i].Settings, c.Checks[i].Options)
	}
	return c, d.Err()
}
