package health_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

var (
	start    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	verdicts = map[byte]health.Verdict{'o': health.OK, 'd': health.Degraded, 'f': health.Fatal, 'u': health.Unknown, 'n': health.NotApplicable}
	letters  = map[health.Verdict]byte{health.OK: 'o', health.Degraded: 'd', health.Fatal: 'f', health.Unknown: 'u', health.NotApplicable: 'n'}
)

func look(letter byte) health.Result {
	reasons := map[byte]string{'o': health.ReasonOK, 'd': "Low", 'f': "Broken", 'u': "Unreadable", 'n': health.ReasonNotApplicable}
	return health.Result{Verdict: verdicts[letter], Reason: reasons[letter]}
}

// walk takes looks, one letter each, a second apart, and writes where the check stands after each: "." is pending, "x"
// Unknown because looks disagree.
func walk(looks string, limits health.Thresholds) (string, health.State) {
	var state health.State
	var trace []byte
	for i := range len(looks) {
		state = health.Step(state, look(looks[i]), limits, start.Add(time.Duration(i)*time.Second))
		trace = append(trace, standing(state))
	}
	return string(trace), state
}

func standing(s health.State) byte {
	switch {
	case !s.Decided():
		return '.'
	case s.Settled().Reason == health.ReasonLooksDisagree:
		return 'x'
	default:
		return letters[s.Settled().Verdict]
	}
}

func TestStep(t *testing.T) {
	for _, tc := range []struct {
		name             string
		failure, success int
		looks, want      string
	}{
		{name: "one look is enough where thresholds are one", failure: 1, success: 1, looks: "ofoduno", want: "ofoduno"},
		{name: "thresholds below one count as one", failure: 0, success: -3, looks: "of", want: "of"},
		{name: "a check is pending until its row of ok looks is full", failure: 3, success: 2, looks: "oo", want: ".o"},
		{name: "a check is pending until its row of bad looks is full", failure: 3, success: 2, looks: "fff", want: "..f"},
		{name: "a single failure does not move a well check", failure: 2, success: 1, looks: "ofofof", want: "oooooo"},
		{name: "a row of failures does", failure: 3, success: 1, looks: "offf", want: "ooof"},
		{name: "an ok look in between starts the row anew", failure: 2, success: 2, looks: "oofoff", want: ".oooof"},
		{name: "recovery takes its own row", failure: 1, success: 3, looks: "foofooo", want: "ffffffo"},
		{name: "degraded after a row of degraded looks", failure: 2, success: 2, looks: "oodd", want: ".ood"},
		{name: "a degraded look counts toward degraded, not toward fatal", failure: 2, success: 1, looks: "odfdff", want: "ooddd" + "f"},
		{name: "from fatal to degraded is recovery and takes the success threshold", failure: 1, success: 2, looks: "fdd", want: "ffd"},
		{name: "ok and degraded looks together leave fatal for degraded", failure: 1, success: 2, looks: "fodod", want: "ffddd"},
		{name: "a check that cannot be looked at keeps its state, then is unknown", failure: 3, success: 1, looks: "ouuu", want: "ooou"},
		{name: "so does a failed one", failure: 3, success: 1, looks: "fffuuu", want: "..fffu"},
		{name: "a failed check with one success threshold above is unknown after the failure threshold all the same", failure: 1, success: 3, looks: "fuo", want: "fuu"},
		{name: "ok looks do not make a failed check unknown on their way", failure: 1, success: 3, looks: "fooo", want: "fffo"},
		{name: "failures and unknown looks in turn are never well", failure: 2, success: 2, looks: "oofufu", want: ".oouuu"},
		{name: "ok and unknown looks in turn leave a well check well", failure: 2, success: 2, looks: "oouououo", want: ".ooooooo"},
		{name: "ok and unknown looks in turn do not leave a failed check failed for ever", failure: 2, success: 2, looks: "ffuououo", want: ".ffuuuuu"},
		{name: "unknown recovers with the success threshold", failure: 1, success: 2, looks: "uoo", want: "uuo"},
		{name: "unknown fails with the failure threshold", failure: 2, success: 1, looks: "uuff", want: ".uuf"},
		{name: "what is gone is not applicable after the failure threshold", failure: 2, success: 1, looks: "onn", want: "oon"},
		{name: "what appears well is well after the success threshold", failure: 2, success: 2, looks: "nnoo", want: ".nno"},
		{name: "what appears broken is broken after the failure threshold", failure: 2, success: 1, looks: "nnff", want: ".nnf"},
		{name: "failures and absence in turn disagree", failure: 2, success: 1, looks: "ofnfn", want: "ooxxx"},
		{name: "ok and failures in turn from the start disagree once both rows could have been full", failure: 2, success: 2, looks: "ofofo", want: "...xx"},
		{name: "ok and degraded looks in turn from the start are degraded", failure: 2, success: 2, looks: "od", want: ".d"},
		{name: "after a disagreement a full row decides", failure: 2, success: 2, looks: "ofofoo", want: "...xxo"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := walk(tc.looks, health.Thresholds{Failure: tc.failure, Success: tc.success}); got != tc.want {
				t.Errorf("after looks %s: %s, want %s", tc.looks, got, tc.want)
			}
		})
	}
}

func TestStepTakesTheLatestReasonWithinAVerdict(t *testing.T) {
	limits := health.Thresholds{Failure: 2, Success: 1}
	_, state := walk("off", limits)
	before := state.Since()
	same := health.Step(state, health.Result{Verdict: health.Fatal, Reason: "Broken", Message: "now with a\nmessage"}, limits, start.Add(time.Minute))
	if got := same.Settled().Message; got != "now with a message" {
		t.Errorf("message %q", got)
	}
	if !same.Since().Equal(before) {
		t.Errorf("since moved to %s although verdict and reason are the same", same.Since())
	}
	other := health.Step(same, health.Result{Verdict: health.Fatal, Reason: "BrokenOtherwise"}, limits, start.Add(2*time.Minute))
	if got := other.Settled().Reason; got != "BrokenOtherwise" {
		t.Errorf("reason %q", got)
	}
	if !other.Since().Equal(start.Add(2 * time.Minute)) {
		t.Errorf("since %s, want the time of the new reason", other.Since())
	}
}

func TestStepSpeaksWithTheLookThatIsPartOfTheRow(t *testing.T) {
	limits := health.Thresholds{Failure: 2, Success: 1}
	old := health.Result{Verdict: health.Unknown, Reason: "LongAgo"}
	state := health.Step(health.State{}, old, limits, start)
	for _, letter := range []byte("ofn") {
		state = health.Step(state, look(letter), limits, start)
	}
	if got := state.Settled().Reason; got != health.ReasonLooksDisagree {
		t.Errorf("reason %q: the row f, n has no unknown look in it", got)
	}
}

func TestUnsettled(t *testing.T) {
	limits := health.Thresholds{Failure: 2, Success: 2}
	for looks, want := range map[string]bool{"": true, "o": true, "oo": false, "oof": true, "oofo": false, "ooff": false, "ooffo": true} {
		_, state := walk(looks, limits)
		if got := state.Unsettled(); got != want {
			t.Errorf("after looks %q: unsettled %t, want %t", looks, got, want)
		}
	}
}

func drawWalk(t *rapid.T) (looks string, limits health.Thresholds) {
	looks = rapid.StringOfN(rapid.SampledFrom([]rune("ooofffddun")), 1, 40, -1).Draw(t, "looks")
	limits = health.Thresholds{Failure: rapid.IntRange(1, 4).Draw(t, "failure"), Success: rapid.IntRange(1, 4).Draw(t, "success")}
	return looks, limits
}

func count(looks string, of byte) (n int) {
	for i := range len(looks) {
		if looks[i] == of {
			n++
		}
	}
	return n
}

func TestStepProperties(t *testing.T) {
	t.Run("never well before ok looks, never failed before fatal ones", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		trace, _ := walk(looks, limits)
		for i := range len(trace) {
			if trace[i] == 'o' && count(looks[:i+1], 'o') < limits.Success {
				t.Fatalf("%s: ok after look %d", trace, i)
			}
			if trace[i] == 'f' && count(looks[:i+1], 'f') < limits.Failure {
				t.Fatalf("%s: fatal after look %d", trace, i)
			}
		}
	}))
	t.Run("every change has a full row of looks behind it that agree with its direction", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		trace, _ := walk(looks, limits)
		for i := 1; i < len(trace); i++ {
			from, to := trace[i-1], trace[i]
			if from == to {
				continue
			}
			need := min(limits.Failure, limits.Success)
			switch to {
			case 'f', 'n':
				need = limits.Failure
			case 'o':
				need = limits.Success
			}
			row := looks[max(i+1-need, 0) : i+1]
			if (to == 'f' || to == 'n' || to == 'o') && count(row, to) != need {
				t.Fatalf("%s after %s: moved to %c at look %d on %q", trace, looks, to, i, row)
			}
			if count(row, from) == need {
				t.Fatalf("%s after %s: moved away from %c at look %d although its looks were in the row %q", trace, looks, from, i, row)
			}
		}
	}))
	t.Run("a check is decided by the time both rows could be full", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		if _, state := walk(looks, limits); len(looks) >= limits.Failure+limits.Success && !state.Decided() {
			t.Fatalf("still pending")
		}
	}))
	t.Run("a decided check stays decided", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		trace, _ := walk(looks, limits)
		for i := 1; i < len(trace); i++ {
			if trace[i] == '.' && trace[i-1] != '.' {
				t.Fatalf("%s", trace)
			}
		}
	}))
	t.Run("without an ok look no well check stays well beyond the failure threshold", rapid.MakeCheck(func(t *rapid.T) {
		_, limits := drawWalk(t)
		bad := rapid.StringOfN(rapid.SampledFrom([]rune("fun")), limits.Failure, limits.Failure+5, -1).Draw(t, "bad")
		start := ""
		for range limits.Success {
			start += "o"
		}
		if trace, _ := walk(start+bad, limits); trace[len(trace)-1] == 'o' {
			t.Fatalf("%s after %s", trace, start+bad)
		}
	}))
	t.Run("since is the time of the last change of verdict or reason", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		var state health.State
		since, before := start, ""
		for i := range len(looks) {
			at := start.Add(time.Duration(i) * time.Second)
			state = health.Step(state, look(looks[i]), limits, at)
			now := string(state.Settled().Verdict) + state.Settled().Reason
			if now != before {
				since, before = at, now
			}
			if !state.Since().Equal(since) {
				t.Fatalf("since %s, want %s", state.Since(), since)
			}
		}
	}))
	t.Run("Step leaves the state it is given as it was", rapid.MakeCheck(func(t *rapid.T) {
		looks, limits := drawWalk(t)
		trace, state := walk(looks, limits)
		more, _ := drawWalk(t)
		health.Step(state, look(more[0]), limits, start)
		after := health.Step(state, look(looks[0]), limits, start)
		again := health.Step(state, look(looks[0]), limits, start)
		if after.Settled() != again.Settled() || standing(state) != trace[len(trace)-1] {
			t.Fatalf("a state changed under its owner")
		}
	}))
}
