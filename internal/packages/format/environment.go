package format

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Surroundings are what the environment of a step is made from.
type Surroundings struct {
	Folders  Folders
	Resource Resource
	// Order is the node's place in the rollout.
	Order int
	// Base is what every command finds, e.g. PATH, HOME and LANG.
	Base map[string]string
	// Package is the env of the plan's package.
	Package map[string]string
	// Previous is the version before, for upgrades.
	Previous string
}

// Environment is what a step finds in its environment: the base, then the plan's env, then ours, then the step's own, then
// where the step lies. Later ones win.
func (p *Package) Environment(mode Mode, s Step, around Surroundings) map[string]string {
	folder := around.Folders.Copy(around.Resource)
	env := map[string]string{}
	for _, layer := range []map[string]string{
		around.Base,
		around.Package,
		{
			"SKYHOOK_LOG_DIR":     around.Folders.Log(),
			"SKYHOOK_ROOT_DIR":    around.Folders.State(),
			"SKYHOOK_RESOURCE_ID": around.Resource.ID(),
			"SKYHOOK_NODE_ORDER":  strconv.Itoa(around.Order),
			"COPY_RESOLV":         "false",
		},
		s.Env,
		p.versions(mode, around.Previous),
		{"STEP_ROOT": path.Join(folder, StepFolder), "SKYHOOK_DIR": folder},
	} {
		maps.Copy(env, layer)
	}
	return env
}

func (p *Package) versions(mode Mode, previous string) map[string]string {
	if mode != Upgrade && mode != Upgrade.Check() {
		return nil
	}
	return map[string]string{"CURRENT_VERSION": p.Version, "PREVIOUS_VERSION": previous}
}

// argumentPrefix begins an argument that is replaced by a variable.
const argumentPrefix = "env:"

// Resolve gives the arguments of a step: env:NAME replaced by the variable, and for an upgrade step the versions before
// and after. Variables that are not there are faults, all at once.
func (p *Package) Resolve(s Step, env map[string]string, previous string) ([]string, error) {
	arguments := slices.Clone(s.Arguments)
	var missing []string
	for i, argument := range arguments {
		name, ok := strings.CutPrefix(argument, argumentPrefix)
		if !ok {
			continue
		}
		value, there := env[name]
		if !there {
			missing = append(missing, name)
		}
		arguments[i] = value
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("step %s: its arguments name variables that are not set: %s", s.Name, strings.Join(missing, ", "))
	}
	if s.UpgradeStep {
		arguments = append(arguments, previous, p.Version)
	}
	return arguments, nil
}

// AlwaysRun is the variable that, when "true", makes steps run although their flags are there.
const AlwaysRun = "OVERLAY_ALWAYS_RUN_STEP"

// Skips reports whether a step whose flag is on the host is not run again.
func (s Step) Skips(mode Mode, env map[string]string) bool {
	return (mode == Apply || mode == PostInterrupt) && !s.Idempotent && !strings.EqualFold(env[AlwaysRun], "true")
}
