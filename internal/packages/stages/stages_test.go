package stages_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fettle-dev/fettle/internal/packages/stages"
)

type (
	plan  = stages.Plan
	pkg   = stages.Package
	host  = stages.Host
	hurts = stages.Disruption
)

var (
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	limits = stages.Limits{Retries: 1, FailedTTL: time.Hour}
)

func of(packages ...pkg) plan {
	return plan{Packages: packages, Admitted: true, Drained: true, Limits: limits}
}

func reboot() *hurts { return &hurts{Type: stages.Reboot} }
func noop() *hurts   { return &hurts{Type: stages.Noop} }
func restart(services ...string) *hurts {
	return &hurts{Type: stages.Service, Services: services}
}

// run carries out tasks until there are none, the last first, and gives what ran: "stage name version", or for an
// interrupt "type services for members". fails says which of them fail.
func run(p plan, h host, fails ...string) (ran []string, end host) {
	now := noon
	for range 1000 {
		h = stages.Follow(p, h, now)
		tasks := stages.Next(p, h, now).Tasks
		if len(tasks) == 0 {
			return ran, h
		}
		task := tasks[len(tasks)-1]
		name := words(task)
		ran = append(ran, name)
		result := stages.Succeeded
		if slices.Contains(fails, name) {
			result = stages.Failed
		}
		h = stages.Finish(p, stages.Begin(p, h, task), task, result, now)
	}
	return append(ran, "without end"), h
}

func words(task stages.Task) string {
	if task.Members == nil {
		return strings.TrimSpace(task.String() + " " + task.Previous)
	}
	return strings.Join(append([]string{string(task.Disruption.Type)}, task.Disruption.Services...), " ") + " for " + strings.Join(task.Members, " ")
}

// treated is a host on which a plan was carried out.
func treated(t *testing.T, p plan) host {
	t.Helper()
	_, h := run(p, host{})
	if !stages.IsComplete(p, h) {
		t.Fatalf("incomplete: %+v", h)
	}
	return h
}

func TestOrders(t *testing.T) {
	one := pkg{Name: "a", Version: "1.0.0"}
	two := one
	two.Version = "2.0.0"
	hurting := func(p pkg, by *hurts) pkg { p.Interrupt = by; return p }
	gone := func(p pkg) pkg { p.Uninstall = true; return p }
	configured := func(p pkg, value string, on ...hurts) pkg {
		p.Config = map[string]string{"key": value}
		for _, d := range on {
			p.ConfigInterrupts = map[string]hurts{"k*": d}
		}
		return p
	}
	again := func(p pkg, stage stages.Stage) pkg { p.Rerun = stages.Rerun{ID: "x", Stage: stage}; return p }
	for _, tc := range []struct {
		name   string
		before *plan
		plan   plan
		want   string
	}{
		{name: "install", plan: of(one), want: "apply a 1.0.0, config a 1.0.0"},
		{name: "install with an interrupt", plan: of(hurting(one, reboot())), want: "apply a 1.0.0, config a 1.0.0, reboot for a, post-interrupt a 1.0.0"},
		{name: "even one that does nothing", plan: of(hurting(one, noop())), want: "apply a 1.0.0, config a 1.0.0, noop for a, post-interrupt a 1.0.0"},
		{name: "nothing to do", before: new(of(one)), plan: of(one), want: ""},
		{name: "upgrade", before: new(of(one)), plan: of(two), want: "upgrade a 2.0.0 1.0.0, config a 2.0.0"},
		{name: "upgrade with an interrupt", before: new(of(one)), plan: of(hurting(two, restart("x"))), want: "upgrade a 2.0.0 1.0.0, config a 2.0.0, service x for a, post-interrupt a 2.0.0"},
		{name: "downgrade", before: new(of(two)), plan: of(one), want: "apply a 1.0.0, config a 1.0.0"},
		{name: "a config change", before: new(of(configured(one, "1"))), plan: of(configured(one, "2")), want: "config a 1.0.0"},
		{name: "a config change with an interrupt", before: new(of(configured(one, "1"))), plan: of(configured(one, "2", *restart("x"))), want: "config a 1.0.0, service x for a, post-interrupt a 1.0.0"},
		{name: "a config change does not run again what was run", before: new(of(configured(hurting(one, reboot()), "1"))), plan: of(configured(hurting(one, reboot()), "2", *restart("x"))),
			want: "config a 1.0.0, service x for a, post-interrupt a 1.0.0"},
		{name: "a config change that matches nothing", before: new(of(configured(hurting(one, reboot()), "1"))), plan: of(configured(hurting(one, reboot()), "2")), want: "config a 1.0.0"},
		{name: "a first configuration", before: new(of(one)), plan: of(configured(one, "1", *noop())), want: "config a 1.0.0, noop for a, post-interrupt a 1.0.0"},
		{name: "uninstall", before: new(of(one)), plan: of(gone(one)), want: "uninstall a 1.0.0"},
		{name: "uninstall with an interrupt", before: new(of(hurting(one, reboot()))), plan: of(gone(hurting(one, reboot()))), want: "uninstall a 1.0.0, reboot for a"},
		{name: "uninstall what was never there", plan: of(gone(hurting(one, reboot()))), want: ""},
		{name: "uninstall another version than the plan names", before: new(of(one)), plan: of(gone(two)), want: "uninstall a 1.0.0"},
		{name: "removed from the plan", before: new(of(one)), plan: of(), want: ""},
		{name: "a new interrupt waits for the next time", before: new(of(one)), plan: of(hurting(one, reboot())), want: ""},
		{name: "rerun apply", before: new(of(hurting(one, noop()))), plan: of(again(hurting(one, noop()), stages.Apply)), want: "apply a 1.0.0, config a 1.0.0, noop for a, post-interrupt a 1.0.0"},
		{name: "rerun config", before: new(of(one)), plan: of(again(one, stages.Config)), want: "config a 1.0.0"},
		{name: "rerun interrupt", before: new(of(hurting(one, noop()))), plan: of(again(hurting(one, noop()), stages.Interrupt)), want: "noop for a, post-interrupt a 1.0.0"},
		{name: "rerun the interrupt of a package that has none", before: new(of(one)), plan: of(again(one, stages.Interrupt)), want: ""},
		{name: "rerun post-interrupt", before: new(of(hurting(one, noop()))), plan: of(again(hurting(one, noop()), stages.PostInterrupt)), want: "post-interrupt a 1.0.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h host
			if tc.before != nil {
				h = treated(t, *tc.before)
			}
			ran, h := run(tc.plan, h)
			if got := strings.Join(ran, ", "); got != tc.want {
				t.Errorf("ran %q", got)
			}
			if !stages.IsComplete(tc.plan, h) {
				t.Errorf("incomplete: %+v", h)
			}
			if again, _ := run(tc.plan, h); len(again) > 0 {
				t.Errorf("and then %q", again)
			}
		})
	}
}

func TestWhatStaysOnTheHost(t *testing.T) {
	one, two := pkg{Name: "a", Version: "1.9"}, pkg{Name: "a", Version: "1.10"}
	versions := func(h host) (all []string) {
		for _, r := range h.Records {
			all = append(all, r.Version)
		}
		return all
	}
	h := treated(t, of(one))
	_, up := run(of(two), h)
	if got := versions(up); !cmp.Equal(got, []string{"1.10"}) {
		t.Errorf("after an upgrade: %q", got)
	}
	_, down := run(of(one), up)
	if got := versions(down); !cmp.Equal(got, []string{"1.10", "1.9"}) {
		t.Errorf("after a downgrade: %q", got)
	}
	two.Uninstall = true
	if _, gone := run(of(two), down); len(gone.Records) > 0 {
		t.Errorf("after an uninstall: %+v", gone)
	}
}

func TestDependencies(t *testing.T) {
	a := pkg{Name: "a", Version: "1.0.0", DependsOn: map[string]string{"b": "1.0.0"}}
	b := pkg{Name: "b", Version: "1.0.0", Interrupt: noop()}
	if ran, _ := run(of(a, b), host{}); strings.Join(ran, ", ") != "apply b 1.0.0, config b 1.0.0, noop for b, post-interrupt b 1.0.0, apply a 1.0.0, config a 1.0.0" {
		t.Errorf("ran %q", ran)
	}
	waits := func(p plan) []stages.Wait {
		h := stages.Follow(p, host{}, noon)
		return stages.Next(p, h, noon).Waits
	}
	other := b
	other.Version = "1.0.1"
	if got := waits(of(a, other)); len(got) != 1 || got[0].Reason != stages.DependencyIncomplete || got[0].On != "b" {
		t.Errorf("of another version: %v", got)
	}
	b.Uninstall = true
	if got := waits(of(a, b)); len(got) != 1 || got[0].Reason != stages.DependencyUninstalled {
		t.Errorf("of one that is uninstalled: %v", got)
	}
	both := of(a, pkg{Name: "b", Version: "1.0.0"})
	h := treated(t, both)
	for i := range both.Packages {
		both.Packages[i].Uninstall = true
	}
	if ran, _ := run(both, h); strings.Join(ran, ", ") != "uninstall a 1.0.0, uninstall b 1.0.0" {
		t.Errorf("uninstalled in the order %q", ran)
	}
}

// The table of merges: what runs, as whose.
func TestMerge(t *testing.T) {
	for _, tc := range []struct {
		a, b   *hurts
		want   hurts
		winner int
	}{
		{restart("x"), restart("y", "x"), *restart("x", "y"), 0},
		{noop(), restart("x"), *restart("x"), 1},
		{restart("x"), &hurts{Type: stages.RestartAllServices}, hurts{Type: stages.RestartAllServices}, 1},
		{&hurts{Type: stages.RestartAllServices}, reboot(), *reboot(), 1},
		{reboot(), reboot(), *reboot(), 0},
		{restart("x"), noop(), *restart("x"), 0},
	} {
		if got, winner := stages.Merge([]hurts{*tc.a, *tc.b}); !cmp.Equal(got, tc.want) || winner != tc.winner {
			t.Errorf("%v and %v: %v as %d", *tc.a, *tc.b, got, winner)
		}
	}
}

func TestInterruptsCoalesce(t *testing.T) {
	a := pkg{Name: "a", Version: "1.0.0", Interrupt: restart("x")}
	b := pkg{Name: "b", Version: "1.0.0", Interrupt: restart("y", "x")}
	c := pkg{Name: "c", Version: "1.0.0"}
	later := pkg{Name: "d", Version: "1.0.0", Interrupt: reboot(), DependsOn: map[string]string{"a": "1.0.0"}}
	for _, serial := range []bool{false, true} {
		p := of(a, b, c, later)
		p.Serial = serial
		ran, h := run(p, host{})
		if !stages.IsComplete(p, h) {
			t.Errorf("incomplete: %q", ran)
		}
		at := slices.Index(ran, "service x y for a b")
		if at < 0 || at < slices.Index(ran, "config a 1.0.0") || at < slices.Index(ran, "config b 1.0.0") {
			t.Errorf("ran %q", ran)
		}
		if i := slices.Index(ran, "reboot for d"); i < slices.Index(ran, "post-interrupt a 1.0.0") {
			t.Errorf("ran %q", ran)
		}
	}
	// One that fails before its interrupt does not hold the others'.
	p := of(a, b)
	ran, h := run(p, host{}, "apply b 1.0.0")
	if !slices.Contains(ran, "service x for a") || stages.IsComplete(p, h) {
		t.Errorf("ran %q", ran)
	}
	// One whose interrupt runs as another's waits for that one, and goes on with it.
	failed := func(h host) bool { return h.Interruption != nil && h.Interruption.Failed }
	ran, h = run(p, host{}, "service x y for a b")
	if !failed(h) || slices.Contains(ran, "post-interrupt b 1.0.0") {
		t.Errorf("ran %q, %+v", ran, h)
	}
	p.Packages[0].Reopen = "please"
	if ran, h = run(p, h); strings.Join(ran, ", ") != "service x y for a b, post-interrupt b 1.0.0, post-interrupt a 1.0.0" || !stages.IsComplete(p, h) {
		t.Errorf("ran %q", ran)
	}
}

func TestWhatMayNotStart(t *testing.T) {
	quiet, loud := pkg{Name: "a", Version: "1.0.0"}, pkg{Name: "b", Version: "1.0.0", Interrupt: noop()}
	for _, tc := range []struct {
		name   string
		change func(*plan)
		runs   string
		waits  string
	}{
		{name: "all may", change: func(*plan) {}, runs: "apply a 1.0.0, apply b 1.0.0"},
		{name: "what interrupts waits for the drain", change: func(p *plan) { p.Drained = false }, runs: "apply a 1.0.0", waits: "b: NotDrained"},
		{name: "nothing without an admission", change: func(p *plan) { p.Admitted = false }, waits: "a: NotAdmitted, b: NotAdmitted"},
		{name: "nothing on hold", change: func(p *plan) { p.Hold = true }, waits: "a: Held, b: Held"},
		{name: "one at a time", change: func(p *plan) { p.Serial = true }, runs: "apply a 1.0.0", waits: "b: Serial a"},
	} {
		p := of(quiet, loud)
		tc.change(&p)
		choice := stages.Next(p, stages.Follow(p, host{}, noon), noon)
		var runs, waits []string
		for _, task := range choice.Tasks {
			runs = append(runs, words(task))
		}
		for _, w := range choice.Waits {
			waits = append(waits, w.String())
		}
		if strings.Join(runs, ", ") != tc.runs || strings.Join(waits, ", ") != tc.waits {
			t.Errorf("%s: runs %q, waits %q", tc.name, runs, waits)
		}
	}
}

func TestRetries(t *testing.T) {
	p := of(pkg{Name: "a", Version: "1.0.0"})
	p.Limits.Retries = 3
	now, h := noon, host{}
	var starts []time.Duration
	for range 4 {
		choice := stages.Next(p, h, now)
		if len(choice.Tasks) == 0 {
			now = choice.Wake()
			choice = stages.Next(p, h, now)
		}
		starts = append(starts, now.Sub(noon))
		task := choice.Tasks[0]
		if task.Attempt != len(starts) {
			t.Errorf("attempt %d is called %d", len(starts), task.Attempt)
		}
		h = stages.Finish(p, stages.Begin(p, h, task), task, stages.Failed, now)
	}
	if want := []time.Duration{0, 0, 10 * time.Second, 30 * time.Second}; !cmp.Equal(starts, want) {
		t.Errorf("began at %v", starts)
	}
	if r, _ := h.Record("a", "1.0.0"); r.State != stages.Erroring {
		t.Errorf("%+v", r)
	}
	choice := stages.Next(p, stages.Follow(p, h, now), now)
	if wake := choice.Wake(); len(choice.Tasks) > 0 || wake.Sub(now) != time.Hour {
		t.Errorf("%+v", choice)
	}
	for name, next := range map[string]host{
		"after the TTL": stages.Follow(p, h, now.Add(time.Hour)),
		"when reopened": stages.Follow(of(pkg{Name: "a", Version: "1.0.0", Reopen: "x"}), h, now),
	} {
		if tasks := stages.Next(p, next, now).Tasks; len(tasks) != 1 || tasks[0].Attempt != 1 {
			t.Errorf("%s: %v", name, tasks)
		}
	}
	if got := stages.Backoff(100); got != 5*time.Minute {
		t.Errorf("%v", got)
	}
	// A clock that was set back by a day does not keep the stage waiting for a day.
	back := stages.Finish(p, stages.Begin(p, host{}, stages.Next(p, host{}, now).Tasks[0]), stages.Next(p, host{}, now).Tasks[0], stages.Failed, now)
	if tasks := stages.Next(p, back, now.Add(-24*time.Hour)).Tasks; len(tasks) != 1 {
		t.Errorf("%v", tasks)
	}
}

func TestStoppedAttemptsDoNotCount(t *testing.T) {
	p := of(pkg{Name: "a", Version: "1.0.0", Interrupt: reboot()})
	h := host{}
	for range 10 {
		task := stages.Next(p, h, noon).Tasks[0]
		h = stages.Finish(p, stages.Begin(p, h, task), task, stages.Stopped, noon)
	}
	if ran, _ := run(p, h); len(ran) != 4 {
		t.Errorf("ran %q", ran)
	}
}

func TestMatchKey(t *testing.T) {
	for _, tc := range []struct {
		pattern, key string
		want         bool
	}{
		{"a.conf", "a.conf", true}, {"a.conf", "b.conf", false}, {"*", "", true}, {"*.conf", "a.conf", true}, {"*.conf", "a.config", false},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "a", false}, {"a*b*c", "axbxbc", true}, {"a*bc", "abcbc", true}, {"*a*", "bab", true}, {"a?", "ab", false},
	} {
		if got := stages.MatchKey(tc.pattern, tc.key); got != tc.want {
			t.Errorf("%s matches %s: %v", tc.pattern, tc.key, got)
		}
	}
}
