package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

// Check is one check as configured.
type Check struct {
	Kind     probes.Kind
	Settings CheckSettings
	// Options is what Kind.Build takes: a pointer to the kind's options.
	Options any
}

// CheckSettings are the keys that every check has.
type CheckSettings struct {
	Name             string          `key:"name" doc:"which check this entry sets, or the name of the one it makes; required" default:"none"`
	Kind             string          `key:"kind" doc:"the template that the check is made of; a built-in check is its own kind" default:"the check's name"`
	Condition        ConditionType   `key:"condition" doc:"type of the Node condition that the check feeds; fettle.dev/Healthy, which every check feeds, stands for no other" default:"that of the kind"`
	Disabled         bool            `key:"disabled" doc:"the check is not looked at and feeds no condition"`
	DryRun           bool            `key:"dryRun" doc:"the check is looked at and shown, and feeds no condition"`
	Severity         health.Severity `key:"severity" doc:"the worst that the check counts as: fatal makes its condition False, degraded leaves it True with the check's reason, info is only shown" oneof:"fatal,degraded,info"`
	Interval         time.Duration   `key:"interval" doc:"time from look to look" min:"1s" max:"24h" default:"that of the kind"`
	Timeout          time.Duration   `key:"timeout" doc:"deadline of one look" min:"10ms" default:"that of the kind"`
	FailureThreshold int             `key:"failureThreshold" doc:"looks in a row, other than ok, after which the check is not well" min:"1" max:"10" default:"that of the kind"`
	SuccessThreshold int             `key:"successThreshold" doc:"ok looks in a row after which the check is well again" min:"1" max:"10" default:"that of the kind"`
	MinHold          time.Duration   `key:"minHold" doc:"how long a check that is not well stays so at least; what acts on conditions mostly waits by itself" min:"0s" max:"24h"`
	Flapping         Flapping        `key:"flapping" doc:"when a check changes too often to be believed"`
	StaleAfter       time.Duration   `key:"staleAfter" doc:"how long a verdict stands without a look that came to an end; 0s: for ever" min:"0s" max:"168h" default:"three intervals and a timeout"`
	Clearing         health.Clearing `key:"clearing" doc:"what makes a fatal check well again: good looks, or good looks after a reboot; a check with other options starts afresh, and what it had latched is told as lost" oneof:"looks,reboot" default:"that of the kind"`
	DependsOn        []string        `key:"dependsOn" doc:"checks without which this one says nothing: while one of them is fatal or unknown, this one is no fault of its own" default:"those of the kind"`
}

// Flapping : Changes changes of verdict, or of reason while the verdict stands, within Within.
type Flapping struct {
	Changes int           `key:"changes" doc:"changes of verdict, or of reason while the verdict stands, that are too many; 0: any number is believed" min:"0" max:"100"`
	Within  time.Duration `key:"within" doc:"time within which they are too many" min:"1s" max:"24h"`
}

// Validate reports a number of changes that every fault makes.
func (f Flapping) Validate(fault func(what, allowed string, keys ...string)) {
	if f.Changes == 1 || f.Changes == 2 {
		fault(fmt.Sprintf("%d changes are those of a check that breaks and is repaired", f.Changes), "0, or from 3 to 100", "changes")
	}
}

// The kubelet's own types have no domain; these are named for a better message.
var kubeletTypes = []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}

// ConditionType is the type of a Node condition that may be ours: a name with a domain that is not one of Kubernetes'.
type ConditionType string

// UnmarshalText refuses types that other writers own or that the API server would not take.
func (t *ConditionType) UnmarshalText(text []byte) error {
	name := string(text)
	for _, own := range kubeletTypes {
		if name == own {
			return errors.New("is a condition of the kubelet's")
		}
	}
	domain, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return errors.New("has no domain")
	case len(validation.IsQualifiedName(name)) > 0:
		return errors.New("is not a qualified name")
	case within(domain, "kubernetes.io"), within(domain, "k8s.io"):
		return errors.New("is in a domain of Kubernetes")
	}
	*t = ConditionType(name)
	return nil
}

// Allowed says what UnmarshalText takes.
func (ConditionType) Allowed() string {
	return "DOMAIN/Name, e.g. fettle.dev/StorageReady or example.com/RaidHealthy; the shipped admission policy lets agents write those of fettle.dev only"
}

func within(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }

// Validate reports what the values say only together.
func (c CheckSettings) Validate(fault func(what, allowed string, keys ...string)) {
	if c.Timeout >= c.Interval {
		fault(fmt.Sprintf("the timeout %s is not shorter than the interval %s", c.Timeout, c.Interval), "interval > timeout", "timeout", "interval")
	}
	if least := c.Interval + c.Timeout; c.StaleAfter != 0 && c.StaleAfter < least {
		fault(fmt.Sprintf("a verdict would be stale after %s, before the next look must have ended", c.StaleAfter), fmt.Sprintf("0s, or at least interval + timeout, which is %s", least), "staleAfter", "interval", "timeout")
	}
}

// Thresholds are those the health engine takes.
func (c CheckSettings) Thresholds() health.Thresholds {
	return health.Thresholds{Failure: c.FailureThreshold, Success: c.SuccessThreshold}
}

// newCheck is a check of a kind where nothing is configured.
func newCheck(k probes.Kind, name string) Check {
	clearing := k.Clearing
	if clearing == "" {
		clearing = health.ClearByLooks
	}
	return Check{
		Kind: k,
		Settings: CheckSettings{
			Name: name, Kind: k.Name, Condition: ConditionType(k.Condition), Severity: health.SeverityFatal,
			Interval: k.Interval, Timeout: k.Timeout,
			FailureThreshold: k.Thresholds.Failure, SuccessThreshold: k.Thresholds.Success,
			Flapping: Flapping{Changes: 6, Within: 30 * time.Minute},
			Clearing: clearing, DependsOn: k.DependsOn,
		},
		Options: k.NewOptions(),
	}
}

// derive sets defaults that depend on other keys and on which checks there are. given says of a key path whether it was
// configured.
func (c *Config) derive(given func(path string) bool) {
	for i := range c.Checks {
		s := &c.Checks[i].Settings
		at := checkPath(s.Name)
		if !given(at + ".staleAfter") {
			s.StaleAfter = 3*s.Interval + s.Timeout
		}
		if given(at + ".dependsOn") {
			continue
		}
		var there []string
		for _, name := range s.DependsOn {
			if c.check(name) != nil {
				there = append(there, name)
			}
		}
		s.DependsOn = there
	}
}

// check finds a check by name; nil when there is none.
func (c *Config) check(name string) *Check {
	for i := range c.Checks {
		if c.Checks[i].Settings.Name == name {
			return &c.Checks[i]
		}
	}
	return nil
}
