package health_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

func TestAReasonThatGoesToAndFroIsHeldStill(t *testing.T) {
	rule := health.Flapping{Changes: 3, Within: time.Minute}
	for _, tc := range []struct {
		name  string
		check health.Check
		// looks are of one check a second apart: a capital letter is a fatal look with that reason, "d" and "o" are as in
		// stories, and "_" is half a minute without a look.
		looks string
		want  string // the reasons shown, "!" for Flapping
	}{
		{name: "a change of reason is shown", check: health.Check{Flapping: rule}, looks: "ABB", want: "ABB"},
		{name: "too many are one reason", check: health.Check{Flapping: rule}, looks: "ABABABBB", want: "ABA!!!!!"},
		{name: "until it is quiet", check: health.Check{Flapping: rule}, looks: "ABABB_B_BB", want: "ABA!!!BB"},
		{name: "and what is well is well at once", check: health.Check{Flapping: rule}, looks: "ABABo", want: "ABA!o"},
		{name: "changes that are far apart do not count", check: health.Check{Flapping: rule}, looks: "A_B_A_B", want: "ABAB"},
		{name: "a latched fault does not change its reason either", check: health.Check{Flapping: rule, Clearing: health.ClearByReboot}, looks: "ABABABoo", want: "ABA!!!!!"},
		{name: "without a rule all are shown", looks: "ABABA", want: "ABABA"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.check.Name, tc.check.Condition, tc.check.Thresholds = "a", "x/A", once
			engine := health.NewEngine([]health.Check{tc.check})
			engine.Restore(health.Snapshot{}, "boot", start)
			at, got, shown := start, "", health.CheckState{}
			for _, letter := range tc.looks {
				at = at.Add(time.Second)
				switch letter {
				case '_':
					at = at.Add(30 * time.Second)
					continue
				case 'o', 'd':
					engine.Observe("a", look(byte(letter)), at)
				default:
					engine.Observe("a", health.Result{Verdict: health.Fatal, Reason: string(letter), Message: "is " + string(letter)}, at)
				}
				before := shown
				shown = engine.Report().Checks[0]
				switch shown.Reason {
				case health.ReasonFlapping:
					got += "!"
					if before.Reason == shown.Reason && before.Since != shown.Since {
						t.Errorf("from %+v\nto   %+v", before, shown)
					}
					if shown.Verdict != health.Fatal || !strings.HasSuffix(shown.Message, "changed its reason 3 times or more within 1m0s: A, B") {
						t.Errorf("shows %+v", shown)
					}
				case health.ReasonOK:
					got += "o"
				default:
					got += shown.Reason
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// As often as makes it flap; before the first of them may come the one that ended the flapping before.
func TestNoLifeChangesAReasonMoreOftenThanTheRuleAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := health.Flapping{Changes: rapid.IntRange(3, 6).Draw(t, "changes"), Within: time.Minute}
		most := rule.Changes + 1
		engine := health.NewEngine([]health.Check{{Name: "a", Condition: "x/A", Thresholds: once, Flapping: rule}})
		engine.Restore(health.Snapshot{}, "boot", start)
		at, shown := start, ""
		var changes []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			at = at.Add(time.Duration(rapid.SampledFrom([]int{1, 1, 1, 1, 10, 59, 60}).Draw(t, "seconds")) * time.Second)
			engine.Observe("a", health.Result{Verdict: health.Fatal, Reason: rapid.SampledFrom([]string{"A", "A", "B", "C"}).Draw(t, "reason")}, at)
			now := engine.Report().Checks[0]
			if now.Verdict != health.Fatal {
				t.Fatalf("shows %+v", now)
			}
			if shown != "" && now.Reason != shown {
				changes = append(changes, at)
				if first := len(changes) - 1 - most; first >= 0 && at.Sub(changes[first]) < rule.Within {
					t.Fatalf("%d changes of reason within %s", most+1, at.Sub(changes[first]))
				}
			}
			shown = now.Reason
		}
	})
}
