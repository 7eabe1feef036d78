package health_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

// flipping is what a Node says of one check through looks, ticks, waits, restarts, reboots, freezes and
// reconfigurations that leave the check what it is: when its condition came to be True, or not to be any more. A
// condition of which nothing is said stays as it was.
type flipping struct {
	engine *health.Engine
	check  health.Check
	at     time.Time
	boot   string
	well   bool // what the Node says
	said   bool // that it says anything
	flips  []time.Time
	fell   time.Time
	// downs are how long it was not True each time that it came back.
	downs []time.Duration
}

func newFlipping(c health.Check) *flipping {
	c.Name, c.Condition = "a", "x/A"
	f := &flipping{engine: health.NewEngine([]health.Check{c}), check: c, at: start, boot: "boot-0"}
	f.engine.Restore(health.Snapshot{}, f.boot, f.at)
	return f
}

// look lets a look come to something, which the Node is told.
func (f *flipping) look(letter byte) {
	f.engine.Observe("a", look(letter), f.at)
	f.tell()
}

// pass lets time pass, with the ticks that are due in it, or, as in an agent that is busy, with one at its end.
func (f *flipping) pass(d time.Duration, late bool) {
	end := f.at.Add(d)
	for !late {
		next, ok := f.engine.NextTick()
		if !ok || next.After(end) {
			break
		}
		f.at = next
		f.engine.Tick(f.at)
		f.tell()
	}
	f.at = end
	f.engine.Tick(f.at)
	f.tell()
}

func (f *flipping) restart(t *rapid.T) {
	var remembered health.Snapshot
	if err := json.Unmarshal(mustJSON(f.engine.Snapshot()), &remembered); err != nil {
		t.Fatal(err)
	}
	f.engine = health.NewEngine([]health.Check{f.check})
	f.engine.Restore(remembered, f.boot, f.at)
	f.tell()
}

func (f *flipping) reconfigure(change func(*health.Check)) {
	change(&f.check)
	f.engine.Reconfigure([]health.Check{f.check}, f.at)
	f.tell()
}

func (f *flipping) tell() {
	r := f.engine.Report()
	if !slices.Contains(r.Pending, "x/A") && !slices.ContainsFunc(r.Conditions, func(c health.Condition) bool { return c.Type == "x/A" }) {
		f.said = false // there is nothing to look at any more, and the condition is withdrawn
	}
	for _, c := range r.Conditions {
		well := c.Status == health.StatusTrue
		if c.Type != "x/A" || f.said && well == f.well {
			continue
		}
		if f.said {
			f.flips = append(f.flips, f.at)
		}
		switch {
		case !well:
			f.fell = f.at
		case f.said:
			f.downs = append(f.downs, f.at.Sub(f.fell))
		}
		f.well, f.said = well, true
	}
}

// live lets something happen, of which most are looks that come to something else than those before.
func (f *flipping) live(t *rapid.T, hold time.Duration) {
	switch rapid.SampledFrom([]string{"look", "look", "look", "look", "look", "look", "look", "pass", "pass", "late", "restart", "reboot", "thaw", "configure"}).Draw(t, "event") {
	case "look":
		letters := "ooooffudn"
		if f.well {
			letters = "ffffuodn"
		}
		f.look(rapid.SampledFrom([]byte(letters)).Draw(t, "look"))
		f.pass(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds"))*time.Second, false)
	case "pass":
		f.pass(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds"))*time.Second, false)
	case "late":
		f.pass(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds"))*time.Second, true)
	case "reboot":
		f.boot += "+"
		f.restart(t)
	case "restart":
		f.restart(t)
	case "thaw":
		f.engine.StartOver(f.at)
		f.tell()
	case "configure":
		f.reconfigure(func(c *health.Check) {
			c.Thresholds = health.Thresholds{Failure: rapid.IntRange(1, 2).Draw(t, "failure"), Success: rapid.IntRange(1, 2).Draw(t, "success")}
			c.MinHold = hold * time.Duration(rapid.IntRange(1, 3).Draw(t, "holds"))
			c.StaleAfter = rapid.SampledFrom([]time.Duration{0, 90 * time.Second}).Draw(t, "stale")
			c.Clearing = rapid.SampledFrom([]health.Clearing{health.ClearByLooks, health.ClearByLooks, health.ClearByReboot}).Draw(t, "clearing")
		})
	}
}

// mostFlips is how many times within the time of a flapping rule a condition may change: as often as makes the check
// flap, of which the last is not shown where it is to the better. Before the first of them may come the one that ended the
// flapping before, which is to the better, and after which the first is to the worse.
func mostFlips(changes int) int { return changes + changes%2 }

func TestNoLifeFlipsAConditionMoreOftenThanItsRulesAllow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hold := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 10, 60, 300}).Draw(t, "hold")) * time.Second
		rule := health.Flapping{Changes: rapid.IntRange(3, 7).Draw(t, "changes"), Within: time.Duration(rapid.IntRange(10, 600).Draw(t, "within")) * time.Second}
		f := newFlipping(health.Check{Thresholds: once, MinHold: hold, Flapping: rule})
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			before := len(f.flips)
			f.live(t, hold)
			for i := before; i < len(f.flips); i++ {
				if first := i - mostFlips(rule.Changes); first >= 0 && f.flips[i].Sub(f.flips[first]) < rule.Within {
					t.Fatalf("%d flips within %s, and %d within %s make it flap", mostFlips(rule.Changes)+1, f.flips[i].Sub(f.flips[first]), rule.Changes, rule.Within)
				}
			}
		}
		if len(f.downs) > 0 && slices.Min(f.downs) < hold {
			t.Fatalf("True again after %s, with a hold of %s", slices.Min(f.downs), hold)
		}
	})
}

// The bounds are reached, so that no smaller ones would hold.
func TestTheBoundsOfFlipsAreReached(t *testing.T) {
	for changes := 3; changes <= 6; changes++ {
		rule := health.Flapping{Changes: changes, Within: time.Hour}
		f := newFlipping(health.Check{Thresholds: once, Flapping: rule})
		letters := map[bool]byte{true: 'f', false: 'o'}
		flap := func() {
			for range changes {
				f.look(letters[f.well])
				f.pass(time.Second, false)
			}
			for range 20 { // it is held, and more changes change nothing
				f.look('o')
				f.look('f')
			}
			f.look('o')
		}
		f.look('o')
		flap()
		f.pass(rule.Within, false)
		ended := len(f.flips) - 1
		if !f.well || !f.flips[ended].Equal(f.at) {
			t.Fatalf("%d changes: flapping has not ended after %s: %v", changes, rule.Within, f.flips)
		}
		flap()
		if got, want := len(f.flips)-ended, mostFlips(changes); got != want {
			t.Errorf("%d changes: %d flips, the bound is %d", changes, got, want)
		}
	}
	f := newFlipping(health.Check{Thresholds: once, MinHold: time.Minute})
	for range 5 {
		f.look('f')
		f.look('o')
		f.pass(time.Minute, false)
	}
	if len(f.flips) != 9 || f.flips[8].Sub(f.flips[0]) != 4*time.Minute {
		t.Errorf("with a hold of a minute it flips at %v", f.flips)
	}
}
