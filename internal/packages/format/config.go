package format

import (
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// SchemaVersion is the one version of config.json that there is.
const SchemaVersion = "v1"

// MaxConfig is the largest config.json that is read, in bytes.
const MaxConfig = 1 << 20

// Mode is a list of steps of a package, run at one stage of its life.
type Mode string

// Modes. Each but the checks is followed by its check.
const (
	Apply         Mode = "apply"
	Config        Mode = "config"
	PostInterrupt Mode = "post-interrupt"
	Uninstall     Mode = "uninstall"
	Upgrade       Mode = "upgrade"
)

const checkSuffix = "-check"

// Modes are the modes that change a host, in no particular order.
var Modes = []Mode{Apply, Config, PostInterrupt, Uninstall, Upgrade}

// Check is the mode that checks what this one did.
func (m Mode) Check() Mode { return m + checkSuffix }

// IsCheck : the mode only looks.
func (m Mode) IsCheck() bool { return strings.HasSuffix(string(m), checkSuffix) }

// Package is what config.json says.
type Package struct {
	// Name is the package's own, which flags, history and logs go by. Several packages of a plan may have the same.
	Name string
	// Version is a strict semantic version, which they go by too.
	Version string
	// ExpectedConfigFiles must be among the files of the plan's configMap, except for uninstalling.
	ExpectedConfigFiles []string
	// Steps by mode. A mode without steps succeeds.
	Steps map[Mode][]Step
	// Warnings are what is odd in the file and does not matter, in words.
	Warnings []string
}

// Step is one command.
type Step struct {
	Name string
	// Path of the command below the folder of steps.
	Path string
	// Arguments; one that reads env:NAME is replaced by that variable when the step is run.
	Arguments []string
	// ReturnCodes count as success.
	ReturnCodes []int
	// OnHost : the step sees the host as its root. Otherwise it sees the package's image as its root, and the host under
	// /root.
	OnHost bool
	// Env is added to the step's environment.
	Env map[string]string
	// Idempotent : the step looks after itself and always runs. Otherwise a flag on the host keeps it from running twice.
	Idempotent bool
	// UpgradeStep : the step gets the versions before and after as its arguments.
	UpgradeStep bool
}

// Succeeds reports whether an exit status counts as success.
func (s Step) Succeeds(exit int) bool {
	for _, code := range s.ReturnCodes {
		if code == exit {
			return true
		}
	}
	return false
}

// Parse reads config.json; file is the name that faults give as the place. Everything that is wrong comes back at once, as
// strict.Faults. Keys that the schema does not have are warnings.
func Parse(file string, content []byte) (*Package, error) {
	d := strict.NewDecoder(file)
	if err := syntax(content); err != nil {
		d.FaultFrom(file, err.Error(), "JSON")
		return nil, d.Err()
	}
	root := d.Document(asYAML(content))
	if root == nil {
		if d.Err() == nil {
			d.FaultFrom(file, "is empty", "an object with schema_version, package_name, package_version, expected_config_files and modes")
		}
		return nil, d.Err()
	}
	p := &parser{Decoder: d, out: &Package{Steps: map[Mode][]Step{}}}
	p.file(root)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return p.out, nil
}
