package runtime

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
	"github.com/fettle-dev/fettle/internal/systemd"
)

// Reasons of systemd-units.
const (
	UnitFailed       = "UnitFailed"
	UnitNotActive    = "UnitNotActive"
	UnitNotFound     = "UnitNotFound"
	UnitRestarting   = "UnitRestarting"
	UnitStuck        = "UnitStuck"
	OptionalUnitDown = "OptionalUnitDown"
	OtherUnitsFailed = "OtherUnitsFailed"
	UnitsNotAsked    = "UnitsNotAsked"
)

// maxNamed is how many units a message names.
const maxNamed = 5

// unitReasons are API.
var unitReasons = reasons.Table{
	{Name: UnitFailed, Severity: reasons.Fatal, Says: "a unit that must run has failed", Do: "see systemctl status and the journal of the unit that the message names"},
	{Name: UnitNotActive, Severity: reasons.Fatal, Says: "a unit that must run does not: it is stopped, or ended and waits for systemd to start it again", Do: "see systemctl status of the unit that the message names, and start it"},
	{Name: UnitNotFound, Severity: reasons.Fatal, Says: "a unit that must run cannot be loaded: it is not installed, masked, or its file is broken", Do: "install or unmask the unit that the message names, or take it out of the agent's configuration"},
	{Name: UnitRestarting, Severity: reasons.Degraded, Says: "systemd has started a unit again and again because it ended, restartsDegraded times within restartsWindow", Do: "see in the journal of the unit that the message names why it ends; the reason goes by itself once it has run long enough"},
	{Name: UnitStuck, Severity: reasons.Degraded, Says: "a unit has been starting or stopping for longer than stuckAfter", Do: "see systemctl status and systemctl list-jobs: the unit may wait for another one"},
	{Name: OptionalUnitDown, Severity: reasons.Degraded, Says: "a unit that should run has failed, does not run, or cannot be loaded", Do: "see systemctl status of the unit that the message names"},
	{Name: OtherUnitsFailed, Severity: reasons.Degraded, Says: "units of the machine have failed", Do: "see systemctl --failed; systemctl reset-failed forgets those that do not matter"},
	{Name: UnitsNotAsked, Severity: reasons.Unknown, Says: "systemd did not tell how its units stand", Do: "see the message, and whether D-Bus and systemd answer (systemctl status)"},
}

// UnitsOptions configure systemd-units.
type UnitsOptions struct {
	Units            []string      `key:"units" doc:"units that must run, e.g. kubelet.service; one that is not installed is at fault too"`
	InstalledUnits   []string      `key:"installedUnits" doc:"units that must run where they are installed and enabled"`
	OptionalUnits    []string      `key:"optionalUnits" doc:"units that should run: at worst the check is degraded for them"`
	RestartsDegraded int           `key:"restartsDegraded" doc:"degraded when systemd has restarted a unit this often within restartsWindow; 0: off" min:"0" max:"1000"`
	RestartsWindow   time.Duration `key:"restartsWindow" doc:"the time within which restarts are counted" min:"1m" max:"24h"`
	StuckAfter       time.Duration `key:"stuckAfter" doc:"degraded when a unit has been starting or stopping for longer than this" min:"1s" max:"24h"`
	FailedUnits      bool          `key:"failedUnits" doc:"degraded when any other unit of the machine has failed, as systemctl --failed lists them"`
}

// unitName is what systemd takes as a name of a unit, with the type.
var unitName = regexp.MustCompile(`^[a-zA-Z0-9:_.\\@-]{1,240}\.(service|socket|target|device|mount|automount|swap|timer|path|slice|scope)$`)

// Validate reports names that no unit can have, and those that are there twice.
func (o UnitsOptions) Validate(fault func(what, allowed string, keys ...string)) {
	type place struct{ list, item string }
	listed := map[string]place{}
	for _, list := range []struct {
		key   string
		names []string
	}{{"units", o.Units}, {"installedUnits", o.InstalledUnits}, {"optionalUnits", o.OptionalUnits}} {
		for i, name := range list.names {
			at := place{list: list.key, item: fmt.Sprintf("%s[%d]", list.key, i)}
			if !unitName.MatchString(name) || strings.Contains(name, "@.") {
				fault(fmt.Sprintf("%q is not the name of a unit", name), "a name with its type, e.g. kubelet.service or getty@tty1.service", at.item)
			}
			// One of the defaults of installedUnits may be listed elsewhere: the other list says more.
			if before := listed[name]; before.list == at.list || before.list == "units" && at.list == "optionalUnits" {
				fault(fmt.Sprintf("%s is also in %s", name, before.list), "each unit once", at.item, before.item)
			}
			listed[name] = at
		}
	}
}

// Units is the check "systemd-units": do the units run that the machine needs?
//
// A look is one call for the states of all units, and one for each service's count of restarts; only of a unit that does
// not run more is asked. Changes are subscribed to, so that a unit which fails is looked at once.
//
// A unit with a job in systemd's queue, as it has while it is restarted, is on its way and not judged until it has been
// for stuckAfter. A oneshot service that ended well counts as running for as long as systemd remembers it, as it does of
// one that a target wants; without that RemainAfterExit is needed. Of installedUnits those are left out that are not
// installed, masked, or neither enabled nor started.
//
// Restarts are counted from when the agent first looked, and forgotten as they leave the window: a unit that goes on and
// off does not become well by the moment of the look.
var Units = probes.Define(probes.Kind{
	Name:        "systemd-units",
	Condition:   "fettle.dev/RuntimeReady",
	Description: "Asks systemd whether the units run that the machine needs, and whether it had to restart them again and again.",
	Reasons:     unitReasons,
	Interval:    30 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 2},
}, func() UnitsOptions {
	return UnitsOptions{
		InstalledUnits:   []string{"kubelet.service", "containerd.service", "crio.service"},
		RestartsDegraded: 5, RestartsWindow: 20 * time.Minute,
		StuckAfter: 90 * time.Second,
	}
}, func(env probes.Env, o UnitsOptions) probes.Probe {
	return &unitsLook{bus: env.Systemd, judge: newUnitsJudge(o)}
})

type unitsLook struct {
	bus   *systemd.Bus
	judge *unitsJudge
}

// Watch asks for looks when units change.
func (l *unitsLook) Watch(ctx context.Context, look func()) {
	if l.bus == nil {
		<-ctx.Done()
		return
	}
	l.bus.Follow(ctx, l.judge.names(), look)
}

func (l *unitsLook) Run(ctx context.Context) health.Result {
	if l.bus == nil {
		return probes.NotApplicable("this machine has no systemd")
	}
	seen, err := l.read(ctx)
	if err != nil {
		return probes.Because(unitReasons, UnitsNotAsked, "%v", err)
	}
	return l.judge.judge(seen, time.Now())
}

// sight is what one look saw.
type sight struct {
	units  []unitState
	failed []string // all units that have failed, if they were asked for
}

// unitState is what a look saw of one unit. What is not asked for in its state is zero.
type unitState struct {
	systemd.Unit
	// NRestarts of a service that is loaded.
	restarts uint32
	// enabled is UnitFileState, of a unit that is inactive: enabled, disabled, static, …
	enabled string
	// endedWell : a oneshot service, inactive, that ran in this boot and whose last run succeeded.
	endedWell bool
	// result says how a service that failed did: exit-code, signal, timeout, oom-kill, …
	result string
}

func (l *unitsLook) read(ctx context.Context) (sight, error) {
	var seen sight
	if names := l.judge.names(); len(names) > 0 {
		units, err := l.bus.Units(ctx, names...)
		if err != nil {
			return sight{}, err
		}
		for _, u := range units {
			state, err := l.readMore(ctx, u)
			if err != nil {
				return sight{}, err
			}
			seen.units = append(seen.units, state)
		}
	}
	if l.judge.FailedUnits {
		failed, err := l.bus.FailedUnits(ctx)
		if err != nil {
			return sight{}, err
		}
		for _, u := range failed {
			seen.failed = append(seen.failed, u.Name)
		}
		slices.Sort(seen.failed)
	}
	return seen, nil
}

// readMore asks for what the state of a unit makes worth knowing.
func (l *unitsLook) readMore(ctx context.Context, u systemd.Unit) (unitState, error) {
	state := unitState{Unit: u}
	if u.Load != "loaded" {
		return state, nil
	}
	properties := propertyReader{ctx: ctx, bus: l.bus, unit: u.Name}
	isService := strings.HasSuffix(u.Name, ".service")
	if isService {
		state.restarts = read[uint32](&properties, systemd.OfService, "NRestarts")
	}
	switch u.Active {
	case "failed":
		if isService {
			state.result = read[string](&properties, systemd.OfService, "Result")
		}
	case "inactive":
		state.enabled = read[string](&properties, systemd.OfUnit, "UnitFileState")
		if isService && read[string](&properties, systemd.OfService, "Type") == "oneshot" {
			state.endedWell = read[string](&properties, systemd.OfService, "Result") == "success" &&
				read[uint64](&properties, systemd.OfService, "ExecMainExitTimestamp") > 0
		}
	}
	return state, properties.err
}

// propertyReader keeps the first error.
type propertyReader struct {
	ctx  context.Context //nolint:containedctx // it lives for one look
	bus  *systemd.Bus
	unit string
	err  error
}

func read[T any](r *propertyReader, of, property string) (value T) {
	if r.err != nil {
		return value
	}
	got, err := r.bus.Property(r.ctx, r.unit, of, property)
	if err != nil {
		r.err = err
		return value
	}
	value, ok := got.(T)
	if !ok {
		r.err = fmt.Errorf("%s of %s is a %T, not a %T", property, r.unit, got, value)
	}
	return value
}
