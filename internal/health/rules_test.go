package health_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

// story tells what happens to an engine, word by word, and writes after each word where the checks stand.
//
// Words: "a=f" is a look of check a (o ok, d degraded, f fatal, u unknown, n not applicable, t timed out), "+30" lets 30
// seconds pass and ticks, "restart" takes the engine through a snapshot in JSON, "reboot" does so into another boot,
// "thaw" starts it over after the process was frozen.
//
// Standings: one word per check: "." is pending, else the letter of the verdict, with "!" for Flapping, "~" for
// ResultStale, "<" for PrerequisiteFailed.
type story struct {
	t      *testing.T
	checks []health.Check
	engine *health.Engine
	at     time.Time
	boot   int
}

func newStory(t *testing.T, checks ...health.Check) *story {
	s := &story{t: t, checks: checks, at: start, engine: health.NewEngine(checks)}
	s.engine.Restore(health.Snapshot{}, s.bootID(), s.at)
	return s
}

func (s *story) bootID() string { return fmt.Sprintf("boot-%d", s.boot) }

func (s *story) tell(words string) (standings string) {
	var all []string
	for _, word := range strings.Fields(words) {
		s.hear(word)
		all = append(all, s.stand())
	}
	return strings.Join(all, " ")
}

func (s *story) hear(word string) {
	switch name, letter, isLook := strings.Cut(word, "="); {
	case isLook && letter == "t":
		s.engine.Observe(name, health.Result{Verdict: health.Unknown, Reason: health.ReasonTimeout}, s.at)
	case isLook:
		s.engine.Observe(name, look(letter[0]), s.at)
	case word[0] == '+':
		seconds, err := strconv.Atoi(word[1:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.at = s.at.Add(time.Duration(seconds) * time.Second)
		s.engine.Tick(s.at)
	case word == "restart":
		s.restart()
	case word == "reboot":
		s.boot++
		s.restart()
	case word == "thaw":
		s.engine.StartOver(s.at)
	default:
		s.t.Fatalf("no such word: %s", word)
	}
}

func (s *story) restart() {
	raw, err := json.Marshal(s.engine.Snapshot())
	if err != nil {
		s.t.Fatal(err)
	}
	var remembered health.Snapshot
	if err := json.Unmarshal(raw, &remembered); err != nil {
		s.t.Fatal(err)
	}
	s.engine = health.NewEngine(s.checks)
	s.engine.Restore(remembered, s.bootID(), s.at)
}

func (s *story) stand() (all string) {
	for _, c := range s.engine.Report().Checks {
		mark := map[string]string{health.ReasonFlapping: "!", health.ReasonStale: "~", health.ReasonPrerequisite: "<"}[c.Reason]
		if c.Reason == health.ReasonPending {
			all += "."
			continue
		}
		all += string(letters[c.Verdict]) + mark
	}
	return all
}

var once = health.Thresholds{Failure: 1, Success: 1}

func TestRulesOfOneCheck(t *testing.T) {
	var (
		held     = health.Check{MinHold: time.Minute}
		flaps    = health.Check{Flapping: health.Flapping{Changes: 3, Within: time.Minute}}
		stale    = health.Check{StaleAfter: time.Minute}
		latched  = health.Check{Clearing: health.ClearByReboot}
		twice    = health.Thresholds{Failure: 2, Success: 2}
		degraded = health.Check{Severity: health.SeverityDegraded}
		info     = health.Check{Severity: health.SeverityInfo}
	)
	for _, tc := range []struct {
		name        string
		check       health.Check
		words, want string
	}{
		{name: "severity degraded: nothing counts as worse than degraded", check: degraded, words: "a=o a=f a=u a=d a=n", want: "o d d d n"},
		{name: "severity info: everything counts as ok", check: info, words: "a=f a=u a=d a=o a=n", want: "o o o o n"},
		{name: "severity does not say anything before the first verdict", check: with(info, func(c *health.Check) { c.Thresholds = twice }), words: "a=f a=f", want: ". o"},

		{name: "hold: good looks do not count before its end", check: held, words: "a=f +59 a=o +1", want: "f f f o"},
		{name: "hold: at its end the looks so far decide", check: held, words: "a=f +30 a=o +10 a=f +20", want: "f f f f f f"},
		{name: "hold: a failed check does not turn degraded or unknown within it", check: held, words: "a=f a=d a=u a=n +60", want: "f f f f n"},
		{name: "hold: what gets worse does so at once and is held from then on", check: held, words: "a=d +30 a=f a=o +59 +1", want: "d d f f f o"},
		{name: "hold: from fatal to degraded starts no new hold", check: held, words: "a=f +60 a=d a=o", want: "f f d o"},
		{name: "hold: a well check is not held", check: held, words: "a=o a=n a=o a=f", want: "o n o f"},
		{name: "hold: it goes on over a restart", check: held, words: "a=f +30 restart a=o +29 +1", want: "f f f f f o"},
		{name: "hold: without a look it does not end", check: held, words: "a=f restart +61 a=o", want: "f f f o"},
		{name: "hold: it goes on over a reboot", check: held, words: "a=f +30 reboot a=o +30", want: "f f f f o"},
		{name: "hold: it goes on over a freeze", check: held, words: "a=f +30 thaw a=o +30", want: "f f f f o"},
		{name: "hold: it counts for a check that is degraded, though that is not said before a look", check: held, words: "a=d +30 restart a=o +30", want: "d d . d o"},

		{name: "flapping: held at the worst once it changed too often", check: flaps, words: "a=o a=f a=o a=f a=o a=o", want: "o f o f! f! f!"},
		{name: "flapping: until it was quiet for a while, then looks decide", check: flaps, words: "a=o a=f a=o a=f +50 a=o +59 +1", want: "o f o f! f! f! f! o"},
		{name: "flapping: changes that are far enough apart do not count", check: flaps, words: "a=o a=f +30 a=o +30 a=f +30 a=o", want: "o f f o o f f o"},
		{name: "flapping: what is held gets worse with what comes", check: flaps, words: "a=o a=d a=o a=d a=f a=o", want: "o d o d! f! f!"},
		{name: "flapping: what comes and goes is at least degraded", check: flaps, words: "a=o a=n a=o a=n", want: "o n o d!"},
		{name: "flapping: it is no worse than the severity allows", check: with(flaps, func(c *health.Check) { c.Severity = health.SeverityDegraded }), words: "a=o a=f a=o a=f a=o", want: "o d o d! d!"},
		{name: "flapping: what counts the same does not flap", check: with(flaps, func(c *health.Check) { c.Severity = health.SeverityInfo }), words: "a=o a=f a=o a=f a=o", want: "o o o o o"},
		{name: "flapping: it goes on over a restart", check: flaps, words: "a=o a=f a=o a=f restart a=o +59 +1", want: "o f o f! f! f! f! o"},
		{name: "flapping: a restart is no way around it", check: flaps, words: "a=o a=f restart a=o restart a=f a=o", want: "o f f o . f! f!"},
		{name: "flapping: nor is one after a reboot, before a look", check: flaps, words: "a=o reboot restart a=f a=o a=f a=o", want: "o . . f o f! f!"},
		{name: "flapping: hidden by a hold it is noticed", check: with(flaps, func(c *health.Check) { c.MinHold = time.Minute }), words: "a=o a=f a=o a=f +60", want: "o f f f! f"},
		{name: "flapping: only settled verdicts change", check: with(flaps, func(c *health.Check) { c.Thresholds = twice }), words: "a=o a=o a=f a=o a=f a=o a=f a=o", want: ". o o o o o o o"},

		{name: "stale: a verdict that nobody looked at for too long", check: stale, words: "a=o +59 +1 a=o", want: "o o u~ o"},
		{name: "stale: a failed one too", check: stale, words: "a=f +60 a=o", want: "f u~ o"},
		{name: "stale: after it full rows decide", check: with(stale, func(c *health.Check) { c.Thresholds = twice }), words: "a=o a=o +60 a=f a=o a=o", want: ". o u~ u~ u~ o"},
		{name: "stale: looks that time out do not come to an end", check: with(stale, func(c *health.Check) { c.Thresholds.Failure = 5 }), words: "a=o +40 a=t +20", want: "o o o u~"},
		{name: "stale: the reason of a check that times out says more", check: stale, words: "a=o +40 a=t +20 a=t", want: "o o u u u"},
		{name: "stale: a pending check is not", check: with(stale, func(c *health.Check) { c.Thresholds = twice }), words: "a=o +120", want: ". ."},
		{name: "stale: within the hold a failed check stays failed", check: with(stale, func(c *health.Check) { c.MinHold = 2 * time.Minute }), words: "a=f +60 +60", want: "f f u~"},
		{name: "stale: a latched one stays latched", check: with(stale, func(c *health.Check) { c.Clearing = health.ClearByReboot }), words: "a=f +60 a=o", want: "f f f"},
		{name: "stale: the time starts anew with the process", check: stale, words: "a=f +40 restart +40 +20", want: "f f f f u~"},

		{name: "latch: no look clears it in the same boot", check: latched, words: "a=o a=f a=o a=n a=u a=d", want: "o f f f f f"},
		{name: "latch: nor over a restart", check: latched, words: "a=f restart a=o restart a=o thaw a=o", want: "f f f f f f f"},
		{name: "latch: good looks of another boot do", check: latched, words: "a=f a=o reboot a=o", want: "f f f o"},
		{name: "latch: by their threshold", check: with(latched, func(c *health.Check) { c.Thresholds = twice }), words: "a=f a=f reboot a=o a=f a=o a=o", want: ". f f f f f o"},
		{name: "latch: looks of another boot that say nothing do not", check: latched, words: "a=f reboot a=u a=u restart a=u a=o", want: "f f f f f f o"},
		{name: "latch: what the machine has no more is cleared in another boot", check: latched, words: "a=f reboot a=n", want: "f f n"},
		{name: "latch: found again in another boot it is latched for that", check: latched, words: "a=f reboot a=f a=o restart a=o reboot a=o", want: "f f f f f f f o"},
		{name: "latch: one fatal look of another boot does not latch where it takes two", check: with(latched, func(c *health.Check) { c.Thresholds = twice }), words: "a=f a=f reboot a=f a=o a=o", want: ". f f f f o"},
		{name: "latch: only what is settled", check: with(latched, func(c *health.Check) { c.Thresholds = twice }), words: "a=o a=o a=f a=o a=o", want: ". o o o o"},
		{name: "latch: degraded and unknown ones are not", check: latched, words: "a=d a=u a=o", want: "d u o"},
		{name: "latch: two boots later it still stands", check: latched, words: "a=f reboot reboot a=u reboot a=o", want: "f f f f f o"},
		{name: "latch: capped to degraded it is not said before a look", check: with(latched, func(c *health.Check) { c.Severity = health.SeverityDegraded }), words: "a=f restart a=o", want: "d . d"},

		{name: "restart: what is well is pending until it is looked at", check: health.Check{Thresholds: twice}, words: "a=o a=o restart a=o a=o", want: ". o . . o"},
		{name: "restart: so is what is degraded", check: health.Check{}, words: "a=d restart a=d", want: "d . d"},
		{name: "restart: and what does not apply", check: health.Check{}, words: "a=n restart a=n", want: "n . n"},
		{name: "restart: what is fatal stays so until a full row of looks says otherwise", check: health.Check{Thresholds: twice}, words: "a=f a=f restart a=o a=f a=o a=o", want: ". f f f f f o"},
		{name: "restart: so does what is unknown", check: health.Check{Thresholds: twice}, words: "a=u a=u restart a=o a=o", want: ". u u u o"},
		{name: "restart: what was pending is", check: health.Check{Thresholds: twice}, words: "a=f restart a=f", want: ". . ."},
		{name: "reboot: what was fatal in another boot is pending", check: health.Check{}, words: "a=f reboot a=o", want: "f . o"},
		{name: "thaw: everything is pending", check: health.Check{}, words: "a=o thaw a=o a=f thaw a=f", want: "o . o f . f"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tc.check
			c.Name, c.Condition = "a", "x/A"
			if c.Thresholds == (health.Thresholds{}) {
				c.Thresholds = once
			}
			if c.Thresholds.Success == 0 {
				c.Thresholds.Success = 1
			}
			if got := newStory(t, c).tell(tc.words); got != tc.want {
				t.Errorf("after %s:\n  %s, want\n  %s", tc.words, got, tc.want)
			}
		})
	}
}
