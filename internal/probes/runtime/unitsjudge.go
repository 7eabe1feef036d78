package runtime

import (
	"slices"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// need is how much a unit is needed.
type need int

const (
	required    need = iota // it must run
	ifInstalled             // it must run where it is installed
	optional                // it should run
)

// unitsJudge judges looks at units, and remembers of earlier ones what it takes to see that a unit is restarted over and
// over, or on its way for long.
type unitsJudge struct {
	UnitsOptions
	needs  map[string]need
	memory map[string]*unitMemory
}

type unitMemory struct {
	restarts restarts
	// onTheWay is when it was first seen starting or stopping since it last was not; zero: it is not.
	onTheWay time.Time
}

func newUnitsJudge(o UnitsOptions) *unitsJudge {
	j := &unitsJudge{UnitsOptions: o, needs: map[string]need{}, memory: map[string]*unitMemory{}}
	for _, list := range []struct {
		need  need
		names []string
	}{{ifInstalled, o.InstalledUnits}, {optional, o.OptionalUnits}, {required, o.Units}} {
		for _, name := range list.names {
			j.needs[name] = list.need
			j.memory[name] = &unitMemory{}
		}
	}
	return j
}

// names are the units that are judged, sorted.
func (j *unitsJudge) names() []string {
	names := make([]string, 0, len(j.needs))
	for name := range j.needs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// finding is what is wrong with one unit.
type finding struct{ reason, unit, what string }

// order is that of the table of reasons: fatal ones first, and among them the most telling.
func (f finding) order() int {
	return slices.IndexFunc(unitReasons, func(r reasons.Reason) bool { return r.Name == f.reason })
}

// judge says what a look comes to: the worst finding, with all units that share it.
func (j *unitsJudge) judge(seen sight, now time.Time) health.Result {
	var found []finding
	var judged []string
	for _, u := range seen.units {
		if j.needs[u.Name] == ifInstalled && leftOut(u) {
			*j.memory[u.Name] = unitMemory{}
			continue
		}
		judged = append(judged, u.Name)
		found = append(found, j.judgeUnit(u, now)...)
	}
	if others := slices.DeleteFunc(slices.Clone(seen.failed), func(name string) bool { return slices.Contains(judged, name) }); len(others) > 0 {
		found = append(found, finding{OtherUnitsFailed, listed(others), "failed"})
	}
	if len(found) > 0 {
		return worst(found)
	}
	slices.Sort(judged)
	switch {
	case len(judged) > 0:
		return probes.OK("nothing is wrong with %s", listed(judged))
	case j.FailedUnits:
		return probes.OK("no unit has failed")
	}
	return probes.NotApplicable("none of the units is installed and enabled on this machine")
}

// leftOut says that a unit which must run where it is installed need not run here.
func leftOut(u unitState) bool {
	if u.Load != "loaded" {
		return true
	}
	started := u.Active != "inactive" || u.Queued
	return !started && !strings.HasPrefix(u.enabled, "enabled")
}

func (j *unitsJudge) judgeUnit(u unitState, now time.Time) (found []finding) {
	m := j.memory[u.Name]
	add := func(reason, what string) { found = append(found, finding{reason, u.Name, what}) }
	down := func(reason, what string) {
		if j.needs[u.Name] == optional {
			reason = OptionalUnitDown
		}
		add(reason, what)
	}
	if j.RestartsDegraded > 0 && u.Load == "loaded" {
		m.restarts.note(u.restarts, now, j.RestartsWindow, j.RestartsDegraded)
		if m.restarts.total() >= j.RestartsDegraded {
			add(UnitRestarting, "is restarted again and again")
		}
	}
	where := whereabouts(u)
	if where != onTheWay {
		m.onTheWay = time.Time{}
	} else if m.onTheWay.IsZero() {
		m.onTheWay = now
	}
	switch where {
	case missing:
		down(UnitNotFound, "is "+u.Load)
	case failed:
		what := "has failed"
		if u.result != "" {
			what += " (" + u.result + ")"
		}
		down(UnitFailed, what)
	case stopped:
		down(UnitNotActive, "is "+u.Active+" ("+u.Sub+")")
	case onTheWay:
		if now.Sub(m.onTheWay) >= j.StuckAfter {
			add(UnitStuck, "is "+u.Active+" ("+u.Sub+") for long")
		}
	}
	return found
}

// place is where a unit stands, by what that means.
type place int

const (
	running place = iota
	onTheWay
	stopped
	failed
	missing
)

// whereabouts reads systemd's words. A service that systemd will start again after a wait is in the state activating
// (auto-restart), and does not run.
func whereabouts(u unitState) place {
	switch {
	case u.Load != "loaded":
		return missing
	case strings.HasPrefix(u.Sub, "auto-restart"):
		return stopped
	case u.Active == "active", u.Active == "reloading", u.Active == "refreshing", u.endedWell:
		return running
	case u.Active == "activating", u.Active == "deactivating", u.Queued:
		return onTheWay
	case u.Active == "failed":
		return failed
	}
	return stopped
}

// worst gives the result of the worst reason found, and names every unit that it is true of.
func worst(found []finding) health.Result {
	slices.SortStableFunc(found, func(a, b finding) int {
		if a.order() != b.order() {
			return a.order() - b.order()
		}
		return strings.Compare(a.unit, b.unit)
	})
	reason := found[0].reason
	var parts []string
	for _, f := range found {
		if f.reason == reason {
			parts = append(parts, f.unit+" "+f.what)
		}
	}
	return probes.Because(unitReasons, reason, "%s", listed(parts))
}

// listed names some, and says when there are more.
func listed(items []string) string {
	if len(items) > maxNamed {
		return strings.Join(items[:maxNamed], ", ") + " and more"
	}
	return strings.Join(items, ", ")
}
