package stages_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/packages/stages"
)

var names = []string{"a", "b", "c", "d"}

func anyDisruption(t *rapid.T, label string) *hurts {
	return rapid.SampledFrom([]*hurts{nil, nil, noop(), restart("x"), restart("y", "x"), {Type: stages.RestartAllServices}, reboot()}).Draw(t, label)
}

// anyPackage depends on packages before it only, so that plans have no cycles.
func anyPackage(t *rapid.T, i int, before []pkg) pkg {
	p := pkg{
		Name:      names[i],
		Version:   rapid.SampledFrom([]string{"1.0.0", "1.1.0", "2.0.0"}).Draw(t, "version"),
		Interrupt: anyDisruption(t, "interrupt"),
		Config:    map[string]string{"one": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "one"), "two": "1"},
	}
	if d := anyDisruption(t, "for a key"); d != nil {
		p.ConfigInterrupts = map[string]hurts{"o*": *d}
	}
	for _, other := range before {
		if rapid.Bool().Draw(t, "depends") {
			if p.DependsOn == nil {
				p.DependsOn = map[string]string{}
			}
			p.DependsOn[other.Name] = other.Version
		}
	}
	return p
}

func anyPlan(t *rapid.T) plan {
	p := plan{Admitted: true, Drained: true, Limits: limits, Serial: rapid.Bool().Draw(t, "serial")}
	for i := range rapid.IntRange(1, len(names)).Draw(t, "packages") {
		p.Packages = append(p.Packages, anyPackage(t, i, p.Packages))
	}
	return p
}

// edit changes something about the plan, as a user or the controller might.
func edit(t *rapid.T, p plan) plan {
	p.Packages = slices.Clone(p.Packages)
	i := rapid.IntRange(0, len(p.Packages)-1).Draw(t, "which")
	at := &p.Packages[i]
	switch rapid.IntRange(0, 8).Draw(t, "edit") {
	case 0:
		*at = anyPackage(t, slices.Index(names, at.Name), p.Packages[:i])
	case 1:
		at.Config = map[string]string{"one": fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "value"))}
	case 2:
		at.Uninstall = !at.Uninstall
	case 3:
		at.Rerun = stages.Rerun{ID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "rerun")),
			Stage: rapid.SampledFrom([]stages.Stage{stages.Apply, stages.Config, stages.Interrupt, stages.PostInterrupt}).Draw(t, "stage")}
	case 4:
		at.Reopen = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "reopen"))
	case 5:
		p.Hold = !p.Hold
	case 6:
		p.Drained = !p.Drained
	case 7:
		p.Admitted = !p.Admitted
	case 8:
		at.Interrupt = anyDisruption(t, "interrupt")
	}
	return p
}

// machine carries out what is chosen, as a process does that may die at any time, and holds every choice against what
// must never be.
type machine struct {
	*rapid.T
	plan plan
	host host
	now  time.Time
}

func (m *machine) choose() stages.Choice {
	m.host = stages.Follow(m.plan, m.host, m.now)
	if again := stages.Follow(m.plan, m.host, m.now); !cmp.Equal(m.host, again) {
		m.Fatalf("following twice is not following once: %s", cmp.Diff(m.host, again))
	}
	choice := stages.Next(m.plan, m.host, m.now)
	var fresh []stages.Task
	for _, task := range choice.Tasks {
		if !m.runs(task) {
			fresh = append(fresh, task)
		}
		if task.Members != nil && len(choice.Tasks) > 1 {
			m.Fatalf("an interrupt beside others: %v", choice.Tasks)
		}
	}
	for _, task := range fresh {
		m.allowed(task, len(choice.Tasks))
	}
	return choice
}

func (m *machine) runs(task stages.Task) bool {
	if task.Members != nil {
		return m.host.Interruption != nil && m.host.Interruption.Running
	}
	r, _ := m.host.Record(task.Name, task.Version)
	return r.Running
}

func (m *machine) allowed(task stages.Task, tasks int) {
	p := m.plan.Packages[slices.IndexFunc(m.plan.Packages, func(p pkg) bool { return p.Name == task.Name })]
	r, there := m.host.Record(task.Name, task.Version)
	owes := p.Interrupt != nil && (!there || r.InterruptPending) || task.Members != nil
	switch {
	case m.plan.Hold || !m.plan.Admitted:
		m.Fatalf("%v begins though nothing may", task)
	case owes && !m.plan.Drained:
		m.Fatalf("%v begins before the host is drained", task)
	case m.plan.Serial && tasks > 1:
		m.Fatalf("%v begins beside another", task)
	}
	if task.Stage == stages.Uninstall || task.Stage == stages.UninstallInterrupt || task.Members != nil && m.host.Interruption != nil {
		return // an interrupt that failed is tried again whatever became of the others
	}
	for name, version := range p.DependsOn {
		at := slices.IndexFunc(m.plan.Packages, func(p pkg) bool { return p.Name == name })
		alone := of(m.plan.Packages[at])
		if m.plan.Packages[at].Version != version || !stages.IsComplete(alone, m.host) {
			m.Fatalf("%v begins before %s is complete", task, name)
		}
	}
}

func (m *machine) do(task stages.Task, result stages.Result) {
	m.host = stages.Begin(m.plan, m.host, task)
	m.host = stages.Finish(m.plan, m.host, task, result, m.now)
}

// settle succeeds at everything until nothing is left.
func (m *machine) settle() (ran []string) {
	m.plan.Hold, m.plan.Admitted, m.plan.Drained = false, true, true
	for range 500 {
		choice := m.choose()
		switch {
		case len(choice.Tasks) > 0:
			task := rapid.SampledFrom(choice.Tasks).Draw(m.T, "task")
			ran = append(ran, words(task))
			m.do(task, stages.Succeeded)
		case choice.Wake().IsZero():
			return ran
		default:
			m.now = choice.Wake()
		}
	}
	m.Fatalf("it never ends: %q", ran[len(ran)-20:])
	return nil
}

// Whatever is edited, fails, or is cut short on the way: it ends, with everything done that can be.
func TestEverythingEndsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, plan: anyPlan(t), now: noon}
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			choice := m.choose()
			if len(choice.Tasks) == 0 || rapid.IntRange(0, 3).Draw(t, "act") == 0 {
				m.plan = edit(t, m.plan)
				continue
			}
			task := rapid.SampledFrom(choice.Tasks).Draw(t, "task")
			m.host = stages.Begin(m.plan, m.host, task)
			if rapid.Bool().Draw(t, "meanwhile") {
				m.plan = edit(t, m.plan)
				m.host = stages.Follow(m.plan, m.host, m.now)
			}
			if rapid.IntRange(0, 4).Draw(t, "dies") > 0 { // else the process is gone, and the task is named again
				result := rapid.SampledFrom([]stages.Result{stages.Succeeded, stages.Succeeded, stages.Failed, stages.Stopped, stages.GaveUp}).Draw(t, "result")
				m.host = stages.Finish(m.plan, m.host, task, result, m.now)
			}
			m.now = m.now.Add(time.Duration(rapid.IntRange(-30, 60).Draw(t, "seconds")) * time.Second)
		}
		m.settle()
		choice := m.choose()
		for _, w := range choice.Waits {
			if w.Reason != stages.DependencyUninstalled && w.Reason != stages.DependencyIncomplete {
				t.Fatalf("%v is never resolved", w)
			}
		}
		if len(choice.Waits) == 0 && !stages.IsComplete(m.plan, m.host) {
			t.Fatalf("nothing waits, and it is not complete: %+v", m.host)
		}
		for _, r := range m.host.Records {
			if r.Running {
				t.Fatalf("%+v runs for ever", r)
			}
		}
	})
}

// A plan that stays the same runs every stage once, and comes to the same however often the process dies.
func TestCrashesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t)
		plain := &machine{T: t, plan: p, now: noon}
		ran := plain.settle()
		if !stages.IsComplete(p, plain.host) && len(plain.choose().Waits) == 0 {
			t.Fatalf("incomplete: %+v", plain.host)
		}
		slices.Sort(ran)
		if once := slices.Compact(slices.Clone(ran)); len(once) != len(ran) {
			t.Fatalf("ran twice: %q", ran)
		}
		shaky := &machine{T: t, plan: p, now: noon}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			choice := shaky.choose()
			if len(choice.Tasks) == 0 {
				break
			}
			task := rapid.SampledFrom(choice.Tasks).Draw(t, "task")
			switch rapid.IntRange(0, 2).Draw(t, "dies") {
			case 0: // before it could say that it begins
			case 1: // after it
				shaky.host = stages.Begin(p, shaky.host, task)
			case 2:
				shaky.do(task, stages.Succeeded)
			}
		}
		shaky.settle()
		if diff := cmp.Diff(plain.host, shaky.host); diff != "" {
			t.Fatalf("came to something else: %s", diff)
		}
	})
}
