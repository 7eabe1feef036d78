package health_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
)

func TestAggregateTypeIsTheOneOfTheAPI(t *testing.T) {
	if health.AggregateType != v1alpha1.ConditionHealthy {
		t.Errorf("%s, the API says %s", health.AggregateType, v1alpha1.ConditionHealthy)
	}
}

// machine has checks a and b on the network, c on storage, each believed at once, and one letter of looks for each.
func machine(looks string) *health.Engine {
	once := health.Thresholds{Failure: 1, Success: 1}
	e := health.NewEngine([]health.Check{
		{Name: "a", Condition: "x/Network", Thresholds: once},
		{Name: "b", Condition: "x/Network", Thresholds: once},
		{Name: "c", Condition: "x/Storage", Thresholds: once},
	})
	for i := range len(looks) {
		if looks[i] != '.' {
			e.Observe(string("abc"[i]), look(looks[i]), start.Add(time.Duration(i)*time.Second))
		}
	}
	return e
}

func TestReportConditions(t *testing.T) {
	for _, tc := range []struct {
		name, looks string
		want        []string // type=status/reason
		pending     []string
		decided     bool
	}{
		{name: "all well", looks: "ooo", decided: true, want: []string{"fettle.dev/Healthy=True/OK", "x/Network=True/OK", "x/Storage=True/OK"}},
		{name: "not looked at: nothing is said", looks: "...", want: nil, pending: []string{"fettle.dev/Healthy", "x/Network", "x/Storage"}},
		{name: "a condition is said as soon as its own checks are decided", looks: "oo.", want: []string{"x/Network=True/OK"}, pending: []string{"fettle.dev/Healthy", "x/Storage"}},
		{name: "a fatal check speaks for its condition and for the machine though others are pending", looks: "f..", want: []string{"fettle.dev/Healthy=False/Broken", "x/Network=False/Broken"}, pending: []string{"x/Storage"}},
		{name: "an unknown one does not", looks: "u..", want: nil, pending: []string{"fettle.dev/Healthy", "x/Network", "x/Storage"}},
		{name: "nor a degraded one", looks: "d..", want: nil, pending: []string{"fettle.dev/Healthy", "x/Network", "x/Storage"}},
		{name: "a condition that is decided to be absent is not pending", looks: "nn.", want: nil, pending: []string{"fettle.dev/Healthy", "x/Storage"}},
		{name: "fatal wins over unknown", looks: "ufo", decided: true, want: []string{"fettle.dev/Healthy=False/Broken", "x/Network=False/Broken", "x/Storage=True/OK"}},
		{name: "unknown wins over degraded", looks: "udo", decided: true, want: []string{"fettle.dev/Healthy=Unknown/Unreadable", "x/Network=Unknown/Unreadable", "x/Storage=True/OK"}},
		{name: "degraded keeps the condition true with its reason", looks: "odo", decided: true, want: []string{"fettle.dev/Healthy=True/Low", "x/Network=True/Low", "x/Storage=True/OK"}},
		{name: "what does not apply has no say", looks: "noo", decided: true, want: []string{"fettle.dev/Healthy=True/OK", "x/Network=True/OK", "x/Storage=True/OK"}},
		{name: "a condition none of whose checks apply is absent", looks: "nno", decided: true, want: []string{"fettle.dev/Healthy=True/OK", "x/Storage=True/OK"}},
		{name: "a machine to which nothing applies has no conditions", looks: "nnn", decided: true, want: nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := machine(tc.looks).Report()
			var got []string
			for _, c := range r.Conditions {
				got = append(got, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("conditions %q, want %q", got, tc.want)
			}
			if !reflect.DeepEqual(r.Pending, tc.pending) {
				t.Errorf("pending %q, want %q", r.Pending, tc.pending)
			}
			if r.Decided != tc.decided {
				t.Errorf("decided %t, want %t", r.Decided, tc.decided)
			}
		})
	}
}

func TestReportNamesWhatFailsWorstFirst(t *testing.T) {
	once := health.Thresholds{Failure: 1, Success: 1}
	e := health.NewEngine([]health.Check{
		{Name: "zebra", Condition: "x/A", Thresholds: once},
		{Name: "low", Condition: "x/A", Thresholds: once},
		{Name: "ape", Condition: "x/A", Thresholds: once},
		{Name: "blind", Condition: "x/A", Thresholds: once},
		{Name: "well", Condition: "x/A", Thresholds: once},
	})
	for name, letter := range map[string]byte{"zebra": 'f', "low": 'd', "ape": 'f', "blind": 'u', "well": 'o'} {
		r := look(letter)
		r.Message = "message of " + name
		e.Observe(name, r, start)
	}
	r := e.Report()
	if want := "ape (Broken), zebra (Broken), blind (Unreadable), low (Low)"; r.Conditions[0].Message != want {
		t.Errorf("aggregate says %q, want %q", r.Conditions[0].Message, want)
	}
	if want := "ape: message of ape; zebra: message of zebra; blind: message of blind; low: message of low"; r.Conditions[1].Message != want {
		t.Errorf("condition says %q, want %q", r.Conditions[1].Message, want)
	}
	if want := (health.Counts{OK: 1, Degraded: 1, Fatal: 2, Unknown: 1}); r.Counts != want {
		t.Errorf("counts %+v, want %+v", r.Counts, want)
	}
}

func TestSummarySince(t *testing.T) {
	e := machine("...")
	if r := e.Report(); r.Summary.Verdict != health.Unknown || !r.Summary.Since.IsZero() {
		t.Errorf("before the first look: %+v", r.Summary)
	}
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for i, step := range []struct {
		check  string
		look   byte
		want   health.Verdict
		reason string
		since  int
	}{
		{check: "a", look: 'o', want: health.Unknown, reason: "Pending", since: 0},
		{check: "b", look: 'o', want: health.Unknown, reason: "Pending", since: 0},
		{check: "c", look: 'o', want: health.OK, since: 2},
		{check: "a", look: 'o', want: health.OK, since: 2},
		{check: "a", look: 'f', want: health.Fatal, reason: "Broken", since: 4},
		{check: "b", look: 'f', want: health.Fatal, reason: "Broken", since: 4},
		{check: "a", look: 'o', want: health.Fatal, reason: "Broken", since: 5},
		{check: "b", look: 'd', want: health.Degraded, reason: "Low", since: 7},
		{check: "b", look: 'o', want: health.OK, since: 8},
	} {
		e.Observe(step.check, look(step.look), at(i))
		if got, want := e.Report().Summary, (health.Summary{Verdict: step.want, Reason: step.reason, Since: at(step.since)}); got != want {
			t.Errorf("after step %d: %+v, want %+v", i, got, want)
		}
	}
	e.Observe("a", look('f'), at(20))
	e.Observe("a", health.Result{Verdict: health.Fatal, Reason: "BrokenOtherwise"}, at(21))
	if got, want := e.Report().Summary, (health.Summary{Verdict: health.Fatal, Reason: "BrokenOtherwise", Since: at(21)}); got != want {
		t.Errorf("after another reason of the same verdict: %+v, want %+v", got, want)
	}
}

func TestObserveSaysWhetherTheReportChanged(t *testing.T) {
	e := machine("ooo")
	if e.Observe("a", look('o'), start.Add(time.Hour)) {
		t.Error("another ok look of a well check changed something")
	}
	if !e.Observe("a", look('f'), start.Add(time.Hour)) {
		t.Error("a failure that is believed changed nothing")
	}
	if e.Observe("no such check", look('f'), start) || e.Unsettled("no such check") {
		t.Error("a check that is not configured changed something")
	}
}

func TestReportIsAFunctionOfTheStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := health.Thresholds{Failure: rapid.IntRange(1, 3).Draw(t, "failure"), Success: rapid.IntRange(1, 3).Draw(t, "success")}
		names := []string{"a", "b", "c"}
		var checks []health.Check
		for _, n := range names {
			checks = append(checks, health.Check{Name: n, Condition: "x/" + rapid.SampledFrom([]string{"A", "B"}).Draw(t, "condition"), Thresholds: limits})
		}
		looks := map[string]string{}
		for _, n := range names {
			looks[n] = rapid.StringOfN(rapid.SampledFrom([]rune("ofdun")), 0, 12, -1).Draw(t, n)
		}
		// One engine sees check after check, the other the checks in turn; each check sees the same looks.
		one, other := health.NewEngine(checks), health.NewEngine(checks)
		for _, n := range names {
			for i := range len(looks[n]) {
				one.Observe(n, look(looks[n][i]), start.Add(time.Duration(i)*time.Second))
			}
		}
		for i := range 12 {
			for _, n := range names {
				if i >= len(looks[n]) {
					continue
				}
				before := other.Report()
				changed := other.Observe(n, look(looks[n][i]), start.Add(time.Duration(i)*time.Second))
				if !changed && !reflect.DeepEqual(before, other.Report()) {
					t.Fatalf("the report changed and Observe did not say so")
				}
			}
		}
		a, b := one.Report(), other.Report()
		if a.Summary.Reason == health.ReasonPending { // since it came to be pending, which is another moment
			a.Summary.Since, b.Summary.Since = time.Time{}, time.Time{}
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
		for _, c := range a.Conditions {
			if c.Reason == health.ReasonPending {
				t.Fatalf("%+v", c)
			}
		}
	})
}

func TestNormalise(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{name: "lines and tabs become spaces", in: " a\n\tb\r\n c ", want: "a b c"},
		{name: "control characters go", in: "a\x1b[31mb\x00c", want: "a [31mb c"},
		{name: "bytes that are no text are marked", in: "a\xffb", want: "a\uFFFDb"},
		{name: "marks that change the direction of text go", in: "a\u202eb", want: "ab"},
		{name: "other scripts stay", in: "Größe 容量", want: "Größe 容量"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := health.Normalise(tc.in); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.String().Draw(t, "text") + strings.Repeat(rapid.StringN(1, 3, -1).Draw(t, "piece"), rapid.IntRange(0, 1200).Draw(t, "times"))
		got := health.Normalise(in)
		if len(got) > health.MaxMessage || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\t") {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		if again := health.Normalise(got); again != got {
			t.Fatalf("not stable: %q, then %q", got, again)
		}
	})
}
