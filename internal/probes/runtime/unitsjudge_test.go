package runtime

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/systemd"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// unit is a service as systemd tells of it; state is "ActiveState/SubState".
func unit(name, active, sub string) unitState {
	return unitState{Unit: systemd.Unit{Name: name, Load: "loaded", Active: active, Sub: sub}}
}

func with(u unitState, set func(*unitState)) unitState {
	set(&u)
	return u
}

func options(set func(*UnitsOptions)) UnitsOptions {
	o := UnitsOptions{Units: []string{"needed.service"}, RestartsDegraded: 5, RestartsWindow: 20 * time.Minute, StuckAfter: 90 * time.Second}
	if set != nil {
		set(&o)
	}
	return o
}

func TestJudgeUnits(t *testing.T) {
	installed := func(o *UnitsOptions) { o.Units, o.InstalledUnits = nil, []string{"needed.service"} }
	optionally := func(o *UnitsOptions) { o.Units, o.OptionalUnits = nil, []string{"needed.service"} }
	for _, tc := range []struct {
		name    string
		set     func(*UnitsOptions)
		units   []unitState
		failed  []string
		reason  string
		message string
	}{
		{name: "it runs", units: []unitState{unit("needed.service", "active", "running")}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it reloads", units: []unitState{unit("needed.service", "reloading", "reload")}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it refreshes, a word of newer systemds", units: []unitState{unit("needed.service", "refreshing", "refreshing")}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{
			name: "it failed", units: []unitState{with(unit("needed.service", "failed", "failed"), func(u *unitState) { u.result = "oom-kill" })},
			reason: UnitFailed, message: "needed.service has failed (oom-kill)",
		},
		{name: "it was stopped", units: []unitState{unit("needed.service", "inactive", "dead")}, reason: UnitNotActive, message: "needed.service is inactive (dead)"},
		{name: "it waits to be started again", units: []unitState{unit("needed.service", "activating", "auto-restart")}, reason: UnitNotActive, message: "needed.service is activating (auto-restart)"},
		{name: "it waits in a queue to be started again", units: []unitState{with(unit("needed.service", "activating", "auto-restart-queued"), func(u *unitState) { u.Queued = true })}, reason: UnitNotActive, message: "needed.service is activating (auto-restart-queued)"},
		{name: "it is starting", units: []unitState{unit("needed.service", "activating", "start")}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it is stopping", units: []unitState{unit("needed.service", "deactivating", "stop-sigterm")}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it was stopped to be restarted", units: []unitState{with(unit("needed.service", "inactive", "dead"), func(u *unitState) { u.Queued = true })}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it failed and is started anew", units: []unitState{with(unit("needed.service", "failed", "failed"), func(u *unitState) { u.Queued = true })}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "a oneshot that ended well", units: []unitState{with(unit("needed.service", "inactive", "dead"), func(u *unitState) { u.endedWell = true })}, reason: health.ReasonOK, message: "nothing is wrong with needed.service"},
		{name: "it is not installed", units: []unitState{{Unit: systemd.Unit{Name: "needed.service", Load: "not-found", Active: "inactive", Sub: "dead"}}}, reason: UnitNotFound, message: "needed.service is not-found"},
		{name: "it is masked", units: []unitState{{Unit: systemd.Unit{Name: "needed.service", Load: "masked", Active: "inactive", Sub: "dead"}}}, reason: UnitNotFound, message: "needed.service is masked"},
		{name: "a state nobody has heard of", units: []unitState{unit("needed.service", "maintenance", "maintenance")}, reason: UnitNotActive, message: "needed.service is maintenance (maintenance)"},

		{name: "not installed, and need not be", set: installed, units: []unitState{{Unit: systemd.Unit{Name: "needed.service", Load: "not-found", Active: "inactive"}}}, reason: health.ReasonNotApplicable, message: "none of the units is installed and enabled on this machine"},
		{name: "installed and not enabled", set: installed, units: []unitState{with(unit("needed.service", "inactive", "dead"), func(u *unitState) { u.enabled = "disabled" })}, reason: health.ReasonNotApplicable, message: "none of the units is installed and enabled on this machine"},
		{name: "installed, enabled and stopped", set: installed, units: []unitState{with(unit("needed.service", "inactive", "dead"), func(u *unitState) { u.enabled = "enabled" })}, reason: UnitNotActive, message: "needed.service is inactive (dead)"},
		{name: "installed, enabled for this boot and stopped", set: installed, units: []unitState{with(unit("needed.service", "inactive", "dead"), func(u *unitState) { u.enabled = "enabled-runtime" })}, reason: UnitNotActive, message: "needed.service is inactive (dead)"},
		{name: "installed, not enabled, and failed when it was started", set: installed, units: []unitState{unit("needed.service", "failed", "failed")}, reason: UnitFailed, message: "needed.service has failed"},

		{name: "an optional one failed", set: optionally, units: []unitState{unit("needed.service", "failed", "failed")}, reason: OptionalUnitDown, message: "needed.service has failed"},
		{name: "an optional one is not installed", set: optionally, units: []unitState{{Unit: systemd.Unit{Name: "needed.service", Load: "not-found"}}}, reason: OptionalUnitDown, message: "needed.service is not-found"},
		{
			name:   "a fault of a needed one goes before that of an optional one",
			set:    func(o *UnitsOptions) { o.OptionalUnits = []string{"a.service"} },
			units:  []unitState{unit("a.service", "failed", "failed"), unit("needed.service", "inactive", "dead")},
			reason: UnitNotActive, message: "needed.service is inactive (dead)",
		},
		{
			name:   "all that share the worst fault are named, in order",
			set:    func(o *UnitsOptions) { o.Units = []string{"c.service", "b.service", "a.service"} },
			units:  []unitState{unit("c.service", "failed", "failed"), unit("b.service", "inactive", "dead"), unit("a.service", "failed", "failed")},
			reason: UnitFailed, message: "a.service has failed, c.service has failed",
		},
		{name: "others have failed", units: []unitState{unit("needed.service", "active", "running")}, failed: []string{"x.service", "y.mount"}, reason: OtherUnitsFailed, message: "x.service, y.mount failed"},
		{name: "many others have failed", units: []unitState{unit("needed.service", "active", "running")}, failed: []string{"1.service", "2.service", "3.service", "4.service", "5.service", "6.service", "7.service"}, reason: OtherUnitsFailed, message: "1.service, 2.service, 3.service, 4.service, 5.service and more failed"},
		{name: "a needed one that failed is no other", units: []unitState{unit("needed.service", "failed", "failed")}, failed: []string{"needed.service"}, reason: UnitFailed, message: "needed.service has failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := newUnitsJudge(options(tc.set)).judge(sight{units: tc.units, failed: tc.failed}, start)
			if got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %+v, want %s: %s", got, tc.reason, tc.message)
			}
			if err := Units.Declares(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnitThatIsOnItsWayForLong(t *testing.T) {
	j := newUnitsJudge(options(nil))
	starting, up := unit("needed.service", "activating", "start"), unit("needed.service", "active", "running")
	for _, step := range []struct {
		at   time.Duration
		unit unitState
		want string
	}{
		{0, starting, health.ReasonOK},
		{89 * time.Second, unit("needed.service", "activating", "start-pre"), health.ReasonOK},
		{90 * time.Second, starting, UnitStuck},
		{100 * time.Second, up, health.ReasonOK},
		{110 * time.Second, starting, health.ReasonOK},
		{199 * time.Second, starting, health.ReasonOK},
		{200 * time.Second, starting, UnitStuck},
	} {
		got := j.judge(sight{units: []unitState{step.unit}}, start.Add(step.at))
		if got.Reason != step.want {
			t.Errorf("after %s: %+v, want %s", step.at, got, step.want)
		}
	}
}

func TestUnitThatIsRestartedAgainAndAgain(t *testing.T) {
	j := newUnitsJudge(options(nil))
	for _, step := range []struct {
		at       time.Duration
		restarts uint32
		want     string
	}{
		{0, 300, health.ReasonOK}, // before the agent's time
		{time.Minute, 302, health.ReasonOK},
		{2 * time.Minute, 304, health.ReasonOK},
		{10 * time.Minute, 305, UnitRestarting},
		{20 * time.Minute, 305, UnitRestarting}, // well at every look since, and still within the window
		{21*time.Minute - time.Second, 305, UnitRestarting},
		{21 * time.Minute, 305, health.ReasonOK},
		{25 * time.Minute, 3, health.ReasonOK}, // started by hand, which sets the counter back, and then restarted
		{26 * time.Minute, 4, UnitRestarting},  // with the one of minute 10
		{30 * time.Minute, 4, health.ReasonOK},
		{31 * time.Minute, 90, UnitRestarting},
	} {
		got := j.judge(sight{units: []unitState{with(unit("needed.service", "active", "running"), func(u *unitState) { u.restarts = step.restarts })}}, start.Add(step.at))
		if got.Reason != step.want {
			t.Errorf("after %s: %+v, want %s", step.at, got, step.want)
		}
	}
}

func TestRestartsCanBeLeftUncounted(t *testing.T) {
	j := newUnitsJudge(options(func(o *UnitsOptions) { o.RestartsDegraded = 0 }))
	for n := range uint32(100) {
		if got := j.judge(sight{units: []unitState{with(unit("needed.service", "active", "running"), func(u *unitState) { u.restarts = n })}}, start); got.Reason != health.ReasonOK {
			t.Fatalf("%+v", got)
		}
	}
}

// Whatever the looks, what is remembered tells whether there were limit restarts within the window, and is bounded.
func TestRestartsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		const window = time.Minute
		var r restarts
		var all []growth
		counter, now := rapid.Uint32Range(0, 10).Draw(t, "counter"), start
		r.note(counter, now, window, limit)
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
			count := rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 5, 40}).Draw(t, "restarts")
			if reset := rapid.IntRange(0, 9).Draw(t, "reset") == 0; reset && counter > uint32(count) {
				counter = uint32(count)
			} else {
				counter += uint32(count)
			}
			all = append(all, growth{at: now, count: count})
			r.note(counter, now, window, limit)
			want := 0
			for _, g := range all {
				if now.Sub(g.at) < window {
					want += g.count
				}
			}
			if got := r.total() >= limit; got != (want >= limit) {
				t.Fatalf("%d restarts within the window, limit %d: told %v of %+v", want, limit, got, r)
			}
			if len(r.recent) > limit {
				t.Fatalf("%d entries are kept for a limit of %d", len(r.recent), limit)
			}
		}
	})
}
