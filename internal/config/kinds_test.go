package config

import (
	"context"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

type toolOptions struct {
	Command     []string     `key:"command" doc:"what is run"`
	WorkDir     string       `key:"workDir" doc:"where; empty: /" is:"abspath"`
	Mode        string       `key:"mode" doc:"how | why" oneof:"one,two"`
	Limit       probes.Bytes `key:"limit" doc:"how much"`
	Retries     int          `key:"retries" doc:"how often" min:"0" max:"5"`
	Codes       []int        `key:"codes" doc:"which" min:"1" max:"255"`
	Strict      bool         `key:"strict" doc:"or not"`
	Token       string       `key:"token" doc:"who" secret:"true"`
	Environment []variable   `key:"environment" doc:"with what"`
	Nested      struct {
		URLPath string `key:"urlPath" doc:"where to"`
	} `key:"nested" doc:"more"`
}

type variable struct {
	Name  string `key:"name" doc:"what it is called"`
	Value string `key:"value" doc:"what it says" secret:"true"`
}

func (v variable) Validate(fault func(what, allowed string, keys ...string)) {
	if v.Name == "" {
		fault("a variable has no name", "a name", "name")
	}
}

func testKind(name string, k probes.Kind) probes.Kind {
	k.Name, k.Description, k.Interval, k.Timeout, k.Thresholds = name, "Looks.", 30*time.Second, time.Second, health.Thresholds{Failure: 2, Success: 1}
	if k.Condition == "" {
		k.Condition = "fettle.dev/StorageReady"
	}
	return probes.Define(k, func() toolOptions { return toolOptions{Command: []string{"/bin/true"}, Mode: "one"} }, func(probes.Env, toolOptions) probes.Probe {
		return probes.Func(func(context.Context) health.Result { return probes.OK("") })
	})
}

// testKinds are two built-in kinds, the second depending on the first, and a template.
var testKinds = []probes.Kind{
	testKind("disk", probes.Kind{}),
	testKind("disk-space", probes.Kind{DependsOn: []string{"disk"}, Clearing: health.ClearByReboot}),
	testKind("exec", probes.Kind{Template: true, Condition: health.AggregateType, DependsOn: []string{"disk", "not-there"}}),
}

// sourceWith is a Source of an environment, without flags.
func sourceWith(environ ...string) Source {
	return Source{over: newOverlay(nil, environ), kinds: testKinds}
}
