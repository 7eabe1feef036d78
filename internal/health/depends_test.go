package health_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

// chain has checks a, b and c, each on a condition of its own, of which each depends on the one before.
func chain(change ...func([]health.Check)) []health.Check {
	checks := []health.Check{
		{Name: "a", Condition: "x/A", Thresholds: once},
		{Name: "b", Condition: "x/B", Thresholds: once, DependsOn: []string{"a"}},
		{Name: "c", Condition: "x/C", Thresholds: once, DependsOn: []string{"b"}},
	}
	for _, f := range change {
		f(checks)
	}
	return checks
}

func TestRulesOfDependence(t *testing.T) {
	for _, tc := range []struct {
		name        string
		checks      []health.Check
		words, want string
	}{
		{name: "a check whose prerequisite failed says nothing", checks: chain(), words: "a=o b=o c=o a=f", want: "o.. oo. ooo fu<u<"},
		{name: "nor one whose prerequisite is unknown", checks: chain(), words: "a=o b=o c=o a=u", want: "o.. oo. ooo uu<u<"},
		{name: "it waits for one that is pending", checks: chain(), words: "b=o c=f a=o", want: "... ... oof"},
		{name: "what it saw meanwhile does not count", checks: chain(), words: "a=f b=f c=f a=o b=o c=o", want: "fu<u< fu<u< fu<u< o.. oo. ooo"},
		{name: "degraded and absent prerequisites stand in nobody's way", checks: chain(), words: "a=d b=n c=o", want: "d.. dn. dno"},
		{name: "one that is not there does not", checks: chain(func(c []health.Check) { c[1].DependsOn = []string{"gone"} }), words: "b=o", want: ".o."},
		{name: "one that runs dry does not", checks: chain(func(c []health.Check) { c[0].DryRun = true }), words: "a=f b=o c=o", want: "f.. fo. foo"},
		{name: "one that counts as degraded at most does not", checks: chain(func(c []health.Check) { c[0].Severity = health.SeverityDegraded }), words: "a=f b=o c=o", want: "d.. do. doo"},
		{name: "a fault found before the prerequisite's is hidden by it", checks: chain(), words: "a=o b=f a=f a=o b=o", want: "o.. ofu< fu<u< o.. oo."},
		{name: "one that is held comes back with the hold", checks: chain(func(c []health.Check) { c[1].MinHold = time.Minute }), words: "a=o b=f a=f +30 a=o b=o +30", want: "o.. ofu< fu<u< fu<u< ofu< ofu< oo."},
		{name: "a latched one is known from before and stays", checks: chain(func(c []health.Check) { c[1].Clearing = health.ClearByReboot }), words: "a=o b=f a=f b=o a=o b=o", want: "o.. ofu< ffu< ffu< ofu< ofu<"},
		{name: "a prerequisite's fault latches nothing", checks: chain(func(c []health.Check) { c[1].Clearing = health.ClearByReboot }), words: "a=f b=f a=o b=o", want: "fu<u< fu<u< o.. oo."},
		{name: "nor does one that is not decided yet", checks: chain(func(c []health.Check) {
			c[0].Thresholds.Failure = 2
			c[1].Clearing = health.ClearByReboot
		}), words: "a=f b=f a=f a=o b=o", want: "... ... fu<u< o.. oo."},
		{name: "a circle is opened where it closes", checks: chain(func(c []health.Check) { c[0].DependsOn = []string{"c"} }), words: "b=o c=o a=o b=f b=o", want: ".o. .oo ooo u<fu< .o."},
		{name: "a check that depends on itself does not", checks: chain(func(c []health.Check) { c[0].DependsOn = []string{"a"} }), words: "a=f", want: "fu<u<"},
		{name: "a prerequisite that goes stale takes its dependents along", checks: chain(func(c []health.Check) { c[0].StaleAfter = time.Minute }), words: "a=o b=o c=o +60", want: "o.. oo. ooo u~u<u<"},
		{name: "one that may make nothing Unknown says nothing, least of all True", checks: chain(func(c []health.Check) { c[1].Severity, c[2].Severity = health.SeverityDegraded, health.SeverityInfo }), words: "a=f", want: "fn<n<"},
		{name: "after a restart a prerequisite that is said to be fatal still shuts it out", checks: chain(), words: "a=o b=o a=f restart b=f a=o b=o", want: "o.. oo. fu<u< fu<u< fu<u< o.. oo."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := newStory(t, tc.checks...).tell(tc.words); got != tc.want {
				t.Errorf("after %s:\n  %s, want\n  %s", tc.words, got, tc.want)
			}
		})
	}
}

func TestAFailedPrerequisiteIsOneFault(t *testing.T) {
	say := func(r health.Report) (all []string) {
		for _, c := range r.Conditions {
			all = append(all, fmt.Sprintf("%s=%s/%s %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return all
	}
	for _, tc := range []struct {
		name, words string
		change      func([]health.Check)
		want        []string
		summary     health.Verdict
		counts      health.Counts
	}{
		{
			name: "the machine's condition names the fault alone", words: "a=f",
			want: []string{
				"fettle.dev/Healthy=False/Broken a (Broken)",
				"x/A=False/Broken a:",
				"x/B=Unknown/PrerequisiteFailed b: depends on check a, which is not well",
				"x/C=Unknown/PrerequisiteFailed c: depends on check a, which is not well",
			},
			summary: health.Fatal, counts: health.Counts{Fatal: 1, Unknown: 2},
		},
		{
			name: "and it is no worse than that", words: "a=u",
			want: []string{
				"fettle.dev/Healthy=Unknown/Unreadable a (Unreadable)",
				"x/A=Unknown/Unreadable a:",
				"x/B=Unknown/PrerequisiteFailed b: depends on check a, which is not well",
				"x/C=Unknown/PrerequisiteFailed c: depends on check a, which is not well",
			},
			summary: health.Unknown, counts: health.Counts{Unknown: 3},
		},
		{
			name: "a fault of its own comes before a check that is shut out", words: "a=o b=f", change: func(c []health.Check) { c[0].Condition, c[2].Condition = "x/B", "x/B" },
			want:    []string{"fettle.dev/Healthy=False/Broken b (Broken)", "x/B=False/Broken b: ; c: depends on check b, which is not well"},
			summary: health.Fatal, counts: health.Counts{OK: 1, Fatal: 1, Unknown: 1},
		},
		{
			name: "also where both are unknown and its name comes later", words: "a=u z=u", change: func(c []health.Check) {
				c[1].Condition, c[2] = "x/Z", health.Check{Name: "z", Condition: "x/Z", Thresholds: once}
			},
			want: []string{
				"fettle.dev/Healthy=Unknown/Unreadable a (Unreadable), z (Unreadable)",
				"x/A=Unknown/Unreadable a:",
				"x/Z=Unknown/Unreadable z: ; b: depends on check a, which is not well",
			},
			summary: health.Unknown, counts: health.Counts{Unknown: 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checks := chain()
			if tc.change != nil {
				tc.change(checks)
			}
			s := newStory(t, checks...)
			s.tell(tc.words)
			r := s.engine.Report()
			if got := say(r); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("says\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			if r.Summary.Verdict != tc.summary || r.Counts != tc.counts {
				t.Errorf("summary %+v, counts %+v", r.Summary, r.Counts)
			}
		})
	}
}

func TestWhatRunsDryIsShownAndCountsForNothing(t *testing.T) {
	s := newStory(t,
		health.Check{Name: "a", Condition: "x/A", Thresholds: once},
		health.Check{Name: "b", Condition: "x/A", Thresholds: once, DryRun: true},
		health.Check{Name: "c", Condition: "x/C", Thresholds: once, DryRun: true},
	)
	s.tell("a=o")
	r := s.engine.Report()
	if !r.Decided || len(r.Pending) != 0 {
		t.Errorf("what runs dry is waited for: %+v", r)
	}
	without := r
	s.tell("b=f c=f")
	r = s.engine.Report()
	if !reflect.DeepEqual(r.Conditions, without.Conditions) || r.Counts != without.Counts || r.Summary != without.Summary || len(r.Failing()) != 0 {
		t.Errorf("what runs dry changed what is said: %+v", r)
	}
	if b := r.Checks[1]; !b.DryRun || b.Verdict != health.Fatal || b.Reason != "Broken" || r.Checks[0].DryRun {
		t.Errorf("%+v", r.Checks)
	}
}

func TestWhatInfoFindsIsNoted(t *testing.T) {
	s := newStory(t, health.Check{Name: "a", Condition: "x/A", Thresholds: once}, health.Check{Name: "b", Condition: "x/A", Thresholds: once, Severity: health.SeverityInfo})
	s.tell("a=o b=f")
	r := s.engine.Report()
	if got, want := r.Conditions[1], (health.Condition{Type: "x/A", Status: health.StatusTrue, Reason: health.ReasonOK, Message: "well: a; noted: b (Broken)"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if r.Summary.Verdict != health.OK || r.Summary.Reason != "" || r.Counts.OK != 2 {
		t.Errorf("%+v %+v", r.Summary, r.Counts)
	}
}
