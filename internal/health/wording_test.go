package health_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

func TestWording(t *testing.T) {
	for _, tc := range []struct {
		name  string
		texts []string // a minute apart; "*3 a" is a, three times in a row
		want  []string
	}{
		{name: "words are said as they come", texts: []string{"gone", "there", "gone"}, want: []string{"gone", "there", "gone"}},
		{name: "numbers that go to and fro are not, after the first time", texts: []string{"load 35.2", "load 36.9", "load 31.0", "load 60"}, want: []string{"load 35.2", "load 36.9", "load 36.9", "load 36.9"}},
		{name: "one that has doubled is", texts: []string{"2 of 8 disks", "3 of 8 disks", "7 of 8 disks", "6 of 8 disks"}, want: []string{"2 of 8 disks", "3 of 8 disks", "7 of 8 disks", "7 of 8 disks"}},
		{name: "so is one that has halved", texts: []string{"800 of 1000", "700 of 1000", "349 of 1000"}, want: []string{"800 of 1000", "700 of 1000", "349 of 1000"}},
		{name: "one that grows slowly is when it has doubled, and when that has", texts: []string{"9 s", "10 s", "15 s", "20 s", "25 s", "30 s", "45 s", "50 s", "55 s"}, want: []string{"9 s", "10 s", "10 s", "10 s", "25 s", "25 s", "25 s", "25 s", "55 s"}},
		{name: "what was seen without being said counts", texts: []string{"9 s", "10 s", "20 s", "4 s", "39 s", "9 s", "41 s"}, want: []string{"9 s", "10 s", "10 s", "4 s", "4 s", "4 s", "41 s"}},
		{name: "a step is said at once", texts: []string{"*9 line 10", "line 12", "*5 line 12", "line 13"}, want: []string{"line 10", "line 10", "line 10", "line 10", "line 10", "line 10", "line 10", "line 10", "line 10", "line 12", "line 12", "line 12", "line 12", "line 12", "line 12", "line 13"}},
		{name: "what moved and stays is said then", texts: []string{"6 disks", "7 disks", "8 disks", "*5 9 disks", "9 disks"}, want: []string{"6 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "9 disks", "9 disks"}},
		{name: "what comes and goes is not", texts: []string{"6 disks", "7 disks", "*4 8 disks", "*4 7 disks", "*4 8 disks"}, want: []string{"6 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks", "7 disks"}},
		{name: "one that comes from nothing is", texts: []string{"0 errors", "1 errors", "0 errors"}, want: []string{"0 errors", "1 errors", "1 errors"}},
		{name: "a number more is another wording", texts: []string{"disk 3", "disk 3 4"}, want: []string{"disk 3", "disk 3 4"}},
		{name: "a number of very many digits is a number", texts: []string{"id 1" + strings.Repeat("9", 400), "id " + strings.Repeat("9", 400), "id " + strings.Repeat("8", 400)}, want: []string{"id 1" + strings.Repeat("9", 400), "id " + strings.Repeat("9", 400), "id " + strings.Repeat("9", 400)}},
		{name: "nothing is a wording too", texts: []string{"", "a", ""}, want: []string{"", "a", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var w health.Wording
			var got []string
			at := start
			for _, text := range tc.texts {
				times := 1
				if _, err := fmt.Sscanf(text, "*%d ", &times); err == nil {
					_, text, _ = strings.Cut(text, " ")
				}
				for range times {
					at = at.Add(time.Minute)
					got = append(got, w.Choose(text, at))
				}
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("said\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// Each time it takes a longer rest before a message that has stopped changing is said anew, a day at most.
func TestAMessageThatStopsAgainAndAgainIsRenewedEverMoreSeldom(t *testing.T) {
	var w health.Wording
	at, before, renewals := start, "", 0
	for day := range 60 {
		for look := range 24 * 60 {
			at = at.Add(time.Minute)
			said := w.Choose(fmt.Sprintf("%d degrees", 50+look/10%20), at) // another every ten minutes
			if said != before {
				before = said
				renewals++
			}
		}
		if most := 13 + day; renewals > most {
			t.Fatalf("said anew %d times in %d days", renewals, day+1)
		}
	}
	if renewals < 60 {
		t.Errorf("said anew %d times in 60 days: it is frozen", renewals)
	}
}

// drawTemplate is a message with places for numbers.
func drawTemplate(t *rapid.T) (template string, places int) {
	places = rapid.IntRange(1, 4).Draw(t, "places")
	for i := range places {
		template += rapid.StringMatching(`[a-z ]{1,6}`).Draw(t, "words") + "%d"
		if i == places-1 {
			template += rapid.StringMatching(`[a-z ]{0,6}`).Draw(t, "end")
		}
	}
	return template, places
}

// Whatever the numbers are, a message whose numbers are others at each look is renewed no more often than they can double
// or halve, and only the first time while they keep within a factor of two.
func TestNumbersThatNeverStandStillAreSaidSeldom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template, places := drawTemplate(t)
		low := rapid.IntRange(1, 1_000_000).Draw(t, "low")
		high := low * rapid.SampledFrom([]int{2, 2, 3, 10, 1000}).Draw(t, "factor")
		bound := 0 // of renewals
		if high > 2*low {
			bound = places * 2 * int(math.Ceil(math.Log2(float64(high)/float64(low))))
		}
		bound++ // the first move
		most := bound
		e := health.NewEngine([]health.Check{{Name: "a", Condition: "x/A", Thresholds: once}})
		e.Restore(health.Snapshot{}, "boot", start)
		at, renewals := start, -1 // the first time it is new
		verdict := rapid.SampledFrom([]health.Verdict{health.Fatal, health.Degraded, health.Unknown}).Draw(t, "verdict")
		before := ""
		for look := range rapid.IntRange(2, 200).Draw(t, "looks") {
			numbers := make([]any, places)
			for i := range numbers {
				numbers[i] = rapid.IntRange(low, high).Draw(t, "number")
			}
			message := fmt.Sprintf(template, numbers...)
			if message == before {
				continue // it stood still
			}
			before = message
			at = at.Add(time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second)
			revision := e.Revision()
			changed := e.Observe("a", health.Result{Verdict: verdict, Reason: "Broken", Message: message}, at)
			if changed != (e.Revision() != revision) {
				t.Fatalf("look %d: the report changed %t, and what is remembered %t", look, changed, !changed)
			}
			if changed {
				renewals++
			}
			if rapid.IntRange(0, 20).Draw(t, "restarts") == 0 && verdict != health.Degraded {
				snapshot, said := e.Snapshot(), e.Report().Checks[0].Message
				e = health.NewEngine([]health.Check{{Name: "a", Condition: "x/A", Thresholds: once}})
				e.Restore(snapshot, "boot", at)
				if now := e.Report().Checks[0].Message; now != said {
					t.Fatalf("after a restart it says %q, before %q", now, said)
				}
				most += bound // what was seen without being said is forgotten
			}
		}
		if renewals > most {
			t.Fatalf("renewed %d times, and %d are enough", renewals, most)
		}
	})
}

// A fault that has become another in size is not shown as it was: what is said is never far from what was last seen for a
// while, and other words are said at once.
func TestNoMessageIsHeldForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template, places := drawTemplate(t)
		draw := func() string {
			numbers := make([]any, places)
			for i := range numbers {
				numbers[i] = rapid.IntRange(0, 1000).Draw(t, "number")
			}
			return fmt.Sprintf(template, numbers...)
		}
		var w health.Wording
		at := start
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			at = at.Add(time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second)
			w.Choose(draw(), at)
		}
		last, said := draw(), ""
		for range 5 {
			at = at.Add(24 * time.Hour)
			said = w.Choose(last, at)
		}
		if said != last {
			t.Fatalf("it says %q and was %q for days", said, last)
		}
		huge := fmt.Sprintf(template, []any{2001, 2001, 2001, 2001}[:places]...)
		if said := w.Choose(huge, at.Add(time.Second)); said != huge {
			t.Fatalf("it says %q of %q", said, huge)
		}
		if other := "otherwise: " + last; w.Choose(other, at.Add(2*time.Second)) != other {
			t.Fatal("other words are not said")
		}
	})
}
