package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// otherVariables start with FETTLE_ and set no key: what the agent reads beside the configuration, and what tests, tools
// and benchmarks of this repository read and may leave to an agent that they start.
var otherVariables = []string{
	configVariable,
	"FETTLE_CACHE", "FETTLE_CRASHES", "FETTLE_KILLS", "FETTLE_LEAVE_OUT", "FETTLE_MODEL_BURSTS", "FETTLE_MODEL_SEED", "FETTLE_VM_ACCELERATOR",
}

// testVariables is how variables start by which this repository's tests speak to the processes that they start.
const testVariables = "FETTLE_TEST_"

// refuseUnknown reports variables that set nothing. A mistyped variable would else be a setting that is silently not in
// force.
func (o overlay) refuseUnknown(d *strict.Decoder, sets map[string]string) {
	known := append(slices.Sorted(maps.Keys(sets)), otherVariables...)
	services := o.services()
	for _, name := range slices.Sorted(maps.Keys(o.environment)) {
		switch {
		case o.ignored[variablePlace(name)], slices.Contains(known, name), strings.HasPrefix(name, testVariables):
		case slices.ContainsFunc(services, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		case strings.HasPrefix(name, checkVariables) && d.Err() != nil:
			// It may be meant for a check of which the file's fault keeps us from knowing.
		default:
			d.FaultFrom(variablePlace(name), strict.Unknown("variable", name, known), "the variables that `nodeagent config docs` lists")
		}
	}
}

// checkVariables is how variables start that set a key of a check.
const checkVariables = envPrefix + "CHECKS_"

// services is how variables start that a kubelet makes for Services of the pod's namespace whose names start with
// "fettle". They are told by the pair of host and port.
func (o overlay) services() []string {
	var prefixes []string
	for name := range o.environment {
		service, found := strings.CutSuffix(name, "_SERVICE_HOST")
		if found && o.environment[service+"_SERVICE_PORT"] != "" {
			prefixes = append(prefixes, service+"_SERVICE_", service+"_PORT")
		}
	}
	return prefixes
}
