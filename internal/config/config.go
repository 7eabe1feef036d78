// Package config reads the agent's configuration: defaults, then a YAML file, then FETTLE_* environment variables, then
// flags, the later over the earlier.
//
// It is strict: an unknown key or variable, a wrong type or an impossible value is a fault with its place and with what is
// allowed, and all faults are reported at once. An agent that must run all the same takes what is not at fault: see
// Source.Tolerant, and package reload. It knows the kinds of checks only as the list it is given.
//
// The tags of the structs are the one table of all keys: decoding, variables, flags, printing and the reference are made
// from them.
package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fettle-dev/fettle/internal/probes"
)

// DefaultPath is where the file is looked for when none is named. It need not exist.
const DefaultPath = "/etc/fettle/nodeagent.yaml"

// Config is the agent's whole configuration. The tags are read by package strict; a reference of all keys can be made
// from them.
type Config struct {
	NodeName   string    `key:"nodeName" doc:"name of the machine's Node object; empty: the machine's host name" restart:"true"`
	Kubeconfig string    `key:"kubeconfig" doc:"kubeconfig file of the agent; empty: the pod's ServiceAccount" restart:"true"`
	StateDir   string    `key:"stateDir" doc:"folder for what the agent remembers over restarts" is:"abspath" restart:"true"`
	HostRoot   string    `key:"hostRoot" doc:"folder in which the machine's root file system is found" is:"abspath" restart:"true"`
	Heartbeat  Heartbeat `key:"heartbeat" doc:"how the agent shows that it is alive" restart:"true"`
	Log        Log       `key:"log" doc:"the agent's own log"`
	Endpoints  Endpoints `key:"endpoints" doc:"where the running agent can be asked how it does" restart:"true"`
	// Checks are all known checks, configured or not, disabled ones too: the built-in ones in the order of the kinds, then
	// those that the file makes of templates, in its order. The file's list, key "checks", is merged into it by name.
	Checks []Check
}

// Validate reports a node name that no Node can have: the agent would wait for it for ever.
func (c Config) Validate(fault func(what, allowed string, keys ...string)) {
	if c.NodeName != "" && len(validation.IsDNS1123Subdomain(c.NodeName)) > 0 {
		fault(fmt.Sprintf("%q cannot be the name of a Node", c.NodeName), "lower-case letters, digits, '-' and '.', at most 253, with a letter or digit at both ends", "nodeName")
	}
}

// Heartbeat sets the agent's Lease. LeaseDuration > Interval > StatusTimeout holds in every Config that Load returned.
type Heartbeat struct {
	Interval      time.Duration `key:"interval" doc:"time between two renewals of the Lease" min:"100ms"`
	LeaseDuration time.Duration `key:"leaseDuration" doc:"how long the Lease holds without a renewal; whole seconds" min:"1s"`
	StatusTimeout time.Duration `key:"statusTimeout" doc:"deadline of one call to the API server, and of one question to the runtime" min:"10ms"`
}

// Validate reports what the values say only together.
func (h Heartbeat) Validate(fault func(what, allowed string, keys ...string)) {
	const order = "leaseDuration > interval > statusTimeout"
	if h.LeaseDuration%time.Second != 0 {
		fault(fmt.Sprintf("%s is not a whole number of seconds, which is what a Lease can hold", h.LeaseDuration), "e.g. 40s", "leaseDuration")
	}
	if h.Interval >= h.LeaseDuration {
		fault(fmt.Sprintf("the interval %s is not shorter than the lease duration %s", h.Interval, h.LeaseDuration), order, "interval", "leaseDuration")
	}
	if h.StatusTimeout >= h.Interval {
		fault(fmt.Sprintf("the status timeout %s is not shorter than the interval %s", h.StatusTimeout, h.Interval), order, "statusTimeout", "interval")
	}
}

// Log sets the agent's own log.
type Log struct {
	Level  string `key:"level" doc:"least severe level that is logged: debug, info, warn or error" oneof:"debug,info,warn,error"`
	Format string `key:"format" doc:"auto: to the journal where stderr is connected to it, text on a terminal, else JSON" oneof:"auto,text,json,journal" restart:"true"`
}

// Default is the configuration that holds where nothing is configured.
func Default(kinds []probes.Kind) Config {
	c := Config{
		StateDir:  "/var/lib/fettle",
		HostRoot:  "/",
		Heartbeat: Heartbeat{Interval: 10 * time.Second, LeaseDuration: 40 * time.Second, StatusTimeout: 5 * time.Second},
		Log:       Log{Level: "info", Format: "auto"},
		Endpoints: DefaultEndpoints(),
	}
	for _, k := range kinds {
		if !k.Template {
			c.Checks = append(c.Checks, newCheck(k, k.Name))
		}
	}
	c.derive(func(string) bool { return false })
	return c
}
