package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
)

// maxSize bounds a configuration file, in bytes. A node of YAML takes many times the memory of its text.
const maxSize = 256 << 10

// Source is what a configuration is read from: a file, and over it the environment and flags as they were when the Source
// was made.
type Source struct {
	over  overlay
	kinds []probes.Kind
}

// NewSource takes the flags that AddFlags registered, after they were parsed.
func NewSource(flags *pflag.FlagSet, kinds []probes.Kind) Source {
	return Source{over: newOverlay(flags, os.Environ()), kinds: kinds}
}

// Path is the file that --config or FETTLE_CONFIG names, else DefaultPath. Only a file that was named must exist.
func (s Source) Path() (path string, named bool) { return s.over.configPath() }

// Read reads the file. Without one that must exist, the content is nil.
func (s Source) Read() ([]byte, error) {
	path, named := s.Path()
	content, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	return content, err
}

// Parse makes the configuration of a content of the file. What is wrong with the values comes back as one strict.Faults
// that lists everything; what was right is in the Config all the same.
func (s Source) Parse(content []byte) (Config, error) {
	path, _ := s.Path()
	made, err := build(path, content, s.over, s.kinds)
	return made.config, err
}

// Load reads the file and makes the configuration.
func (s Source) Load() (Config, error) {
	content, err := s.Read()
	if err != nil {
		return Config{}, err
	}
	return s.Parse(content)
}

// Tolerant makes the best configuration of what is there: of the first of the contents that is valid, with those of the
// environment's and the flags' values that are. The last content must be a valid one; nil is. used is the index of the
// content, and sound is the Source without the values that were left out.
func (s Source) Tolerant(contents ...[]byte) (c Config, used int, sound Source) {
	for used = range contents {
		var err error
		if c, sound, err = s.withoutFaulty(contents[used]); err == nil {
			break
		}
	}
	return c, used, sound
}

// withoutFaulty leaves out values of the environment and the flags until what remains is valid, or the file is at fault.
func (s Source) withoutFaulty(content []byte) (Config, Source, error) {
	sound := Source{kinds: s.kinds, over: s.over}
	sound.over.ignored = map[string]bool{}
	for {
		c, err := sound.Parse(content)
		var faults strict.Faults
		if !errors.As(err, &faults) {
			return c, sound, err
		}
		before := len(sound.over.ignored)
		for _, f := range faults {
			if strings.HasPrefix(f.Where, "environment ") || strings.HasPrefix(f.Where, "flag --") {
				sound.over.ignored[f.Where] = true
			}
		}
		if len(sound.over.ignored) == before {
			return c, sound, err
		}
	}
}

// Load reads the configuration of a command whose flags AddFlags registered: the file that --config or FETTLE_CONFIG
// names, else the one at DefaultPath if it exists, and over it the environment and the flags. What is wrong with the
// values comes back as one strict.Faults that lists everything.
func Load(flags *pflag.FlagSet, kinds []probes.Kind) (Config, error) {
	return NewSource(flags, kinds).Load()
}

// LoadFile reads a configuration file alone, as `config validate` does: no environment and no flags.
func LoadFile(path string, kinds []probes.Kind) (Config, error) {
	content, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, content, kinds)
}

// Parse reads the content of a configuration file. path is only for messages.
func Parse(path string, content []byte, kinds []probes.Kind) (Config, error) {
	made, err := build(path, content, overlay{}, kinds)
	return made.config, err
}

// readFile reads no more of a file than shows that it is too large.
func readFile(path string) ([]byte, error) {
	if at, err := os.Stat(path); err == nil && !at.Mode().IsRegular() && !at.IsDir() {
		return nil, fmt.Errorf("read configuration: %s is not a regular file", path) // opening another may never end
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	return readAll(f)
}

// ReadFrom is LoadFile for what has no name in the file system. name is only for messages.
func ReadFrom(r io.Reader, name string, kinds []probes.Kind) (Config, error) {
	content, err := readAll(r)
	if err != nil {
		return Config{}, err
	}
	return Parse(name, content, kinds)
}

func readAll(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return content, nil
}

// built is a configuration and the decoder that knows where its values came from.
type built struct {
	config  Config
	decoder *strict.Decoder
}

func build(path string, content []byte, over overlay, kinds []probes.Kind) (built, error) {
	c := Default(kinds)
	d := strict.NewDecoder(path)
	if len(content) > maxSize {
		d.FaultAt(fmt.Sprintf("the file is larger than %d KiB", maxSize>>10), "a smaller file")
		content = nil
	}
	checks := strict.Key("checks")
	if root := d.Document(content); root != nil {
		d.Mapping(root, "", strict.Fields(&c), checks)
	}
	listed := c.mergeChecks(d, checks.Nodes(), kinds)
	over.apply(d, &c)
	c.derive(func(path string) bool { return d.Source(path) != "" })
	d.Validate(&c)
	for i := range c.Checks {
		d.ValidateAt(checkPath(c.Checks[i].Settings.Name), &c.Checks[i].Settings, c.Checks[i].Options)
	}
	for _, r := range listed.refused {
		d.ValidateAt(r.path, &r.check.Settings, r.check.Options)
	}
	c.validateTogether(d, listed)
	return built{config: c, decoder: d}, d.Err()
}
