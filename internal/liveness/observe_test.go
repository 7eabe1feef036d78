package liveness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	start  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	limits = Limits{Grace: 50 * time.Second, StartupGrace: 120 * time.Second}
)

func beat(renewTime string) Progress { return Progress{RenewTime: renewTime, Holder: "a"} }

func TestObserve(t *testing.T) {
	const uid = "u1"
	type look struct {
		at       time.Duration // since start
		uid      string        // default u1
		progress Progress
		reported bool
	}
	for _, tc := range []struct {
		name  string
		looks []look
		want  State // after the last look
		since time.Duration
	}{
		{name: "an agent never looked at before is starting", looks: []look{{progress: beat("1")}}, want: Starting},
		{name: "a host without an agent is starting until the startup grace is over",
			looks: []look{{}, {at: 120 * time.Second}}, want: Starting},
		{name: "a host without an agent never reported after that",
			looks: []look{{}, {at: 121 * time.Second}}, want: NeverReported},
		{name: "a renewed lease is a sign of life", looks: []look{{progress: beat("1")}, {at: 10 * time.Second, progress: beat("2")}},
			want: Alive},
		{name: "a first lease is a sign of life", looks: []look{{}, {at: 10 * time.Second, progress: beat("1")}},
			want: Alive},
		{name: "a renewed lease is progress even when its clock stepped back",
			looks: []look{{progress: beat("9")}, {at: time.Second, progress: beat("8")}, {at: 50 * time.Second, progress: beat("7")}}, want: Alive},
		{name: "a new holder is progress even when its clock stood still",
			looks: []look{{progress: beat("1")}, {at: time.Second, progress: Progress{RenewTime: "1", Holder: "b"}}}, want: Alive},
		{name: "silence of exactly the grace period is still alive",
			looks: []look{{progress: beat("1")}, {at: time.Second, progress: beat("2")}, {at: 51 * time.Second, progress: beat("2")}}, want: Alive},
		{name: "silence beyond the grace period",
			looks: []look{{progress: beat("1")}, {at: time.Second, progress: beat("2")}, {at: 52 * time.Second, progress: beat("2")}}, want: Silent, since: time.Second},
		{name: "silence since before the controller started counts from its first look",
			looks: []look{{progress: beat("1"), reported: true}, {at: 50 * time.Second, progress: beat("1"), reported: true}}, want: Starting},
		{name: "and ends after one grace period, not the longer startup grace",
			looks: []look{{progress: beat("1"), reported: true}, {at: 51 * time.Second, progress: beat("1"), reported: true}}, want: Silent},
		{name: "an agent heard once that never reported is silent, not absent",
			looks: []look{{}, {at: time.Second, progress: beat("1")}, {at: 60 * time.Second, progress: beat("1")}}, want: Silent, since: time.Second},
		{name: "an agent that reports before its lease is seen gets a grace period for it",
			looks: []look{{}, {at: 200 * time.Second}, {at: 201 * time.Second, reported: true}}, want: Starting},
		{name: "an agent that reports once and never renews a lease is silent",
			looks: []look{{}, {at: 10 * time.Second, reported: true}, {at: 61 * time.Second, reported: true}}, want: Silent, since: 10 * time.Second},
		{name: "a vanished lease is no sign of life",
			looks: []look{{progress: beat("1"), reported: true}, {at: 30 * time.Second, reported: true}, {at: 51 * time.Second, reported: true}}, want: Silent},
		{name: "a lease that comes back unchanged is no sign of life",
			looks: []look{{progress: beat("1"), reported: true}, {at: 30 * time.Second, reported: true}, {at: 51 * time.Second, progress: beat("1"), reported: true}}, want: Silent},
		{name: "an agent recreated under the same name starts over",
			looks: []look{{progress: beat("1")}, {at: time.Second, progress: beat("2")}, {at: 90 * time.Second, uid: "u2", progress: beat("2")}}, want: Starting},
		{name: "a silent agent that beats again is alive at once",
			looks: []look{{progress: beat("1"), reported: true}, {at: 60 * time.Second, progress: beat("1"), reported: true}, {at: 61 * time.Second, progress: beat("2"), reported: true}},
			want:  Alive},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h History
			var v Verdict
			for _, l := range tc.looks {
				if l.uid == "" {
					l.uid = uid
				}
				h, v = Observe(h, Observation{UID: l.uid, Progress: l.progress, Reported: l.reported}, start.Add(l.at), limits)
			}
			want := Verdict{State: tc.want}
			if tc.want.Quiet() {
				want.Since = start.Add(tc.since)
			}
			if v != want {
				t.Errorf("got %+v, want %+v", v, want)
			}
		})
	}
}

func TestExcusedTimeDoesNotCount(t *testing.T) {
	h, _ := Observe(History{}, Observation{UID: "u1", Progress: beat("1"), Reported: true}, start, limits)
	h = Excuse(h, start.Add(55*time.Second))
	if _, v := Observe(h, Observation{UID: "u1", Progress: beat("1"), Reported: true}, start.Add(100*time.Second), limits); v.State != Starting {
		t.Errorf("45 s after we could see again: %s", v.State)
	}
	if _, v := Observe(h, Observation{UID: "u1", Progress: beat("1"), Reported: true}, start.Add(106*time.Second), limits); v.State != Silent {
		t.Errorf("51 s after we could see again: %s", v.State)
	}
}

func TestResume(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stale time.Duration // as the controller before had counted
		seen  Progress
		at    time.Duration // since this controller began
		want  State
	}{
		{name: "silence goes on where the controller before left it", stale: 45 * time.Second, seen: beat("1"), at: 6 * time.Second, want: Silent},
		{name: "silence adds up to exactly the grace period", stale: 45 * time.Second, seen: beat("1"), at: 5 * time.Second, want: Alive},
		{name: "an agent that beat meanwhile owes nothing", stale: 45 * time.Second, seen: beat("2"), at: 6 * time.Second, want: Alive},
		{name: "a lease that is gone is no beat", stale: 45 * time.Second, at: 6 * time.Second, want: Silent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := Resume("u1", beat("1"), tc.stale, start)
			_, v := Observe(h, Observation{UID: "u1", Progress: tc.seen, Reported: true}, start.Add(tc.at), limits)
			if v.State != tc.want {
				t.Errorf("got %s, want %s", v.State, tc.want)
			}
		})
	}
}

// Whatever is seen between, and however often: an agent that makes progress within every grace period is never silent,
// and one that makes none is, as soon as the grace period is over.
func TestOnlySilenceMakesSilent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		now, beats := start, 0
		seen := func() Observation { return Observation{UID: "u1", Progress: beat(fmt.Sprint(beats)), Reported: true} }
		h, _ = Observe(h, seen(), now, limits)
		lastBeat := now
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(60*time.Second)).Draw(t, "pause")))
			if rapid.Bool().Draw(t, "beats") {
				beats, lastBeat = beats+1, now
			}
			var v Verdict
			h, v = Observe(h, seen(), now, limits)
			if silent := now.Sub(lastBeat) > limits.Grace; silent != (v.State == Silent) {
				t.Fatalf("%s after the last beat: %s", now.Sub(lastBeat), v.State)
			}
			if v.State.Quiet() == v.Since.IsZero() {
				t.Fatalf("%s since %s", v.State, v.Since)
			}
		}
	})
}
