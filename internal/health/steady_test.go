package health_test

import (
	"strings"
	"testing"
	"time"

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
