package fleet

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

var clear = Sight{Proven: true}

func TestAssess(t *testing.T) {
	type look struct {
		at    time.Duration // since start
		seen  Observation
		sight *Sight // default clear
		over  Override
	}
	calm := Observation{Agents: 100}
	storm := Observation{Agents: 100, Stale: 31}
	lost := &Sight{Proven: true, Lost: ReasonWatchStalled}
	forAnHour := func(v Verdict) Override { return Override{Verdict: v, Until: start.Add(time.Hour)} }
	for _, tc := range []struct {
		name      string
		looks     []look
		want      Verdict
		allowance int
		forgive   bool // at the last look
	}{
		{name: "a calm fleet", looks: []look{{seen: calm}}, want: Normal, allowance: 10},
		{name: "before the controller has seen anything no silence is acted on", looks: []look{{seen: calm, sight: &Sight{}}}, want: Normal},
		{name: "nobody to be heard", looks: []look{{seen: Observation{}}}, want: Normal, allowance: 1},
		{name: "a fleet of three may lose one in a window", looks: []look{{seen: Observation{Agents: 3, Stale: 1, Waiting: 1}}}, want: Normal, allowance: 1},
		{name: "two of three are more than that, and may well be two faults", looks: []look{{seen: Observation{Agents: 3, Stale: 2, Waiting: 2}}}, want: Partial, allowance: 1},
		{name: "three of three are the fleet's fault", looks: []look{{seen: Observation{Agents: 3, Stale: 3}}}, want: Suspended},
		{name: "exactly the share does not suspend", looks: []look{{seen: Observation{Agents: 100, Stale: 30}}}, want: Normal, allowance: 10},
		{name: "more than it does", looks: []look{{seen: storm}}, want: Suspended},
		{name: "a large fleet is limited by number", looks: []look{{seen: Observation{Agents: 5000, Waiting: 21, Stale: 21}}}, want: Partial, allowance: 20},
		{name: "suspension lasts through the cooldown", looks: []look{{seen: storm}, {at: time.Second, seen: calm}, {at: 2 * time.Minute, seen: calm}}, want: Suspended},
		{name: "and then all are timed anew", looks: []look{{seen: storm}, {at: time.Second, seen: calm}, {at: 121 * time.Second, seen: calm}}, want: Normal, allowance: 10, forgive: true},
		{name: "another storm in the cooldown begins it anew",
			looks: []look{{seen: storm}, {at: time.Second, seen: calm}, {at: time.Minute, seen: storm}, {at: 61 * time.Second, seen: calm}, {at: 150 * time.Second, seen: calm}}, want: Suspended},
		{name: "a limit that was reached holds no longer than the cooldown",
			looks: []look{{seen: Observation{Agents: 100, Stale: 11, Waiting: 11}}, {at: time.Second, seen: calm}, {at: 121 * time.Second, seen: calm}}, want: Normal, allowance: 10},
		{name: "without sight the controller is blind, whatever it counts", looks: []look{{seen: storm, sight: lost}}, want: Blind},
		{name: "blindness lasts through the cooldown", looks: []look{{seen: calm, sight: lost}, {at: time.Second, seen: calm}, {at: time.Minute, seen: calm}}, want: Blind},
		{name: "then all are timed anew", looks: []look{{seen: calm, sight: lost}, {at: time.Second, seen: calm}, {at: 2 * time.Minute, seen: calm}, {at: 3 * time.Minute, seen: calm}}, want: Normal, allowance: 10, forgive: true},
		{name: "a controller that sees again and still misses many suspends, and times them anew",
			looks: []look{{seen: calm, sight: lost}, {at: time.Second, seen: storm}, {at: 3 * time.Minute, seen: storm}}, want: Suspended, forgive: true},
		{name: "an override lets through what is suspended", looks: []look{{seen: Observation{Agents: 100, Stale: 60, Waiting: 60}, over: forAnHour(Normal)}}, want: Normal, allowance: 60},
		{name: "or by the limit", looks: []look{{seen: Observation{Agents: 100, Stale: 60, Waiting: 60}, over: forAnHour(Partial)}}, want: Partial, allowance: 10},
		{name: "or stops what is not", looks: []look{{seen: calm, over: forAnHour(Suspended)}}, want: Suspended},
		{name: "it does not make the blind see, but forgives nobody either",
			looks: []look{{seen: calm, sight: lost}, {at: time.Second, seen: calm, sight: lost, over: forAnHour(Normal)}}, want: Normal, allowance: 10},
		{name: "it ends by itself", looks: []look{{seen: storm, over: forAnHour(Normal)}, {at: time.Hour, seen: storm, over: forAnHour(Normal)}}, want: Suspended},
		{name: "after one that stopped everything all are timed anew",
			looks: []look{{seen: calm, over: forAnHour(Suspended)}, {at: time.Hour, seen: calm, over: forAnHour(Suspended)}}, want: Normal, allowance: 10, forgive: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s State
			var forgive bool
			for _, l := range tc.looks {
				l.seen.Sight = clear
				if l.sight != nil {
					l.seen.Sight = *l.sight
				}
				s, forgive = Assess(s, l.seen, start.Add(l.at), Policy{Limits: DefaultLimits(), Override: l.over})
			}
			if s.Verdict != tc.want || s.Allowance != tc.allowance || forgive != tc.forgive {
				t.Errorf("%s, allowance %d, forgive %v (%s: %s)", s.Verdict, s.Allowance, forgive, s.Reason, s.Message)
			}
			if !Reasons.Has(s.Reason) || s.Message == "" && s.Computed != Blind {
				t.Errorf("reason %q, message %q", s.Reason, s.Message)
			}
		})
	}
}

func TestResume(t *testing.T) {
	s := Resume(Suspended, time.Minute, start)
	calm := Observation{Agents: 100, Sight: clear}
	policy := Policy{Limits: DefaultLimits()}
	s, _ = Assess(s, calm, start.Add(59*time.Second), policy)
	if s.Verdict != Suspended || !Reasons.Has(s.Reason) {
		t.Errorf("after 119 s of calm under two leaders: %+v", s)
	}
	s, forgive := Assess(s, calm, start.Add(time.Minute), policy)
	if s.Verdict != Normal || !forgive {
		t.Errorf("after two minutes of calm under two leaders: %+v", s)
	}
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons {
		if seen[r.Name] || r.Says == "" || r.Do == "" || r.Severity == "" || strings.HasSuffix(r.Says, ".") {
			t.Errorf("reason %+v", r)
		}
		seen[r.Name] = true
	}
}

// storms draws what a fleet may go through.
func storms(t *rapid.T, agents int) Observation {
	seen := Observation{Agents: agents, Sight: clear}
	seen.Stale = rapid.IntRange(0, agents).Draw(t, "stale")
	seen.Waiting = rapid.IntRange(0, seen.Stale).Draw(t, "waiting")
	if rapid.IntRange(0, 9).Draw(t, "sight") == 0 {
		seen.Sight = Sight{Proven: rapid.Bool().Draw(t, "proven"), Lost: ReasonAPIUnreachable, Message: "test"}
	}
	return seen
}

func someLimits(t *rapid.T) Limits {
	return Limits{
		Window:              time.Duration(rapid.IntRange(1, 300).Draw(t, "window")) * time.Second,
		MaxSilences:         rapid.IntRange(1, 50).Draw(t, "most"),
		MaxSilencesPercent:  rapid.IntRange(1, 100).Draw(t, "percent"),
		SuspendAbovePercent: rapid.IntRange(1, 100).Draw(t, "suspend above"),
		Cooldown:            time.Duration(rapid.IntRange(0, 300).Draw(t, "cooldown")) * time.Second,
	}
}

// Whatever happens, in no window are more silences acted on than its limit allows, and none while that is stopped.
func TestNoMoreThanTheLimitInAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := someLimits(t)
		agents := rapid.IntRange(1, 300).Draw(t, "agents")
		var s State
		var acted []time.Time
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 60_000).Draw(t, "pause")) * time.Millisecond)
			seen := storms(t, agents)
			s, _ = Assess(s, seen, now, Policy{Limits: limits})
			if s.Allowance > 0 && (!s.Verdict.Acts() || !seen.Sight.Proven) {
				t.Fatalf("%d may be acted on while %s", s.Allowance, s.Verdict)
			}
			for range rapid.IntRange(0, s.Allowance).Draw(t, "acts") {
				s = s.Act(now)
				acted = append(acted, now)
			}
			inWindow := 0
			for _, at := range acted {
				if now.Sub(at) < limits.Window {
					inWindow++
				}
			}
			if most := limits.Allowed(agents + inWindow); inWindow > most {
				t.Fatalf("%d in a window, %d allowed", inWindow, most)
			}
		}
	})
}

// Whatever happened before, a fleet that is seen and heard is Normal again after the window and the cooldown.
func TestEveryVerdictIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Limits: someLimits(t)}
		if rapid.Bool().Draw(t, "overridden") {
			policy.Override = Override{Verdict: Suspended, Until: start.Add(5 * time.Minute)}
		}
		agents := rapid.IntRange(1, 300).Draw(t, "agents")
		var s State
		now := start
		for range rapid.IntRange(0, 30).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "pause")) * time.Second)
			s, _ = Assess(s, storms(t, agents), now, policy)
			for range rapid.IntRange(0, s.Allowance).Draw(t, "acts") {
				s = s.Act(now)
			}
		}
		stopped := !s.Verdict.Acts() && s.Verdict != ""
		forgiven := false
		end := now.Add(policy.Limits.Window + policy.Limits.Cooldown + 5*time.Minute)
		for now.Before(end) {
			now = now.Add(time.Second)
			var forgive bool
			s, forgive = Assess(s, Observation{Agents: agents, Sight: clear}, now, policy)
			forgiven = forgiven || forgive
		}
		if s.Verdict != Normal {
			t.Fatalf("still %s (%s)", s.Verdict, s.Message)
		}
		if stopped && !forgiven {
			t.Fatal("nobody's time began anew")
		}
	})
}

// Judging the same twice changes nothing.
func TestAssessIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Limits: someLimits(t)}
		var s State
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "pause")) * time.Second)
			seen := storms(t, 100)
			s, _ = Assess(s, seen, now, policy)
			again, forgive := Assess(s, seen, now, policy)
			if policy.Limits.Cooldown > 0 && (again.Verdict != s.Verdict || again.Since != s.Since || again.Allowance != s.Allowance || again.Calm(now) != s.Calm(now) || forgive) {
				t.Fatalf("%+v, then %+v", s, again)
			}
		}
	})
}
