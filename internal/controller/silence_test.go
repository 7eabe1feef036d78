package controller

import (
	"testing"
	"time"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
)

func TestSpells(t *testing.T) {
	const grace = 50 * time.Second
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := start.Add

	t.Run("a silence is told once, at once", func(t *testing.T) {
		var s spells
		if wait := s.silent("n", start, true, true, grace, at(0)); wait != 0 {
			t.Errorf("wait %s", wait)
		}
	})
	t.Run("what could not be written is tried again at once", func(t *testing.T) {
		var s spells
		s.silent("n", start, true, true, grace, at(0))
		if wait := s.silent("n", start, true, true, grace, at(time.Second)); wait != 0 {
			t.Errorf("wait %s", wait)
		}
	})
	t.Run("an agent that overwrites what was told gets a grace period to renew its lease", func(t *testing.T) {
		var s spells
		s.silent("n", start, true, true, grace, at(0))
		s.toldNode("n")
		s.toldHost("n")
		if wait := s.silent("n", start, true, false, grace, at(time.Hour)); wait != grace {
			t.Errorf("wait %s", wait)
		}
		if wait := s.silent("n", start, true, true, grace, at(time.Hour+20*time.Second)); wait != 30*time.Second {
			t.Errorf("wait %s", wait)
		}
		if wait := s.silent("n", start, true, true, grace, at(time.Hour+grace)); wait != 0 {
			t.Errorf("wait %s", wait)
		}
		if wait := s.silent("n", start, true, true, grace, at(time.Hour+grace+time.Second)); wait != 0 {
			t.Errorf("after that, what could not be written waits %s", wait)
		}
	})
	t.Run("what another leader told counts as told", func(t *testing.T) {
		var s spells
		s.silent("n", start, false, false, grace, at(0))
		if wait := s.silent("n", start, true, false, grace, at(time.Minute)); wait != grace {
			t.Errorf("wait %s", wait)
		}
	})
	t.Run("another silence is told anew", func(t *testing.T) {
		var s spells
		s.silent("n", start, false, false, grace, at(0))
		if wait := s.silent("n", at(time.Minute), true, true, grace, at(2*time.Minute)); wait != 0 {
			t.Errorf("wait %s", wait)
		}
	})
	t.Run("an agent that is back is so once, and only if it ever was there", func(t *testing.T) {
		var s spells
		if s.over("n") {
			t.Error("back without a silence")
		}
		s.silent("n", start, true, true, grace, at(0))
		s.spoke("n")
		if s.over("n") {
			t.Error("back from a silence that the node was not told of")
		}
		s.silent("n", start, true, true, grace, at(0))
		s.spoke("n")
		s.toldNode("n")
		if !s.over("n") || s.over("n") {
			t.Error("not back exactly once")
		}
		s.silent("n", start, false, true, grace, at(0))
		if s.over("n") {
			t.Error("back, and never there")
		}
	})
	t.Run("a living agent whose node says otherwise is nudged after a moment, and again", func(t *testing.T) {
		var s spells
		for _, look := range []struct{ at, want time.Duration }{
			{0, nudgeAfter}, {time.Second, nudgeAfter - time.Second}, {nudgeAfter, 0}, {nudgeAfter + time.Second, nudgeAfter - time.Second}, {2 * nudgeAfter, 0},
		} {
			if wait := s.alive("n", true, at(look.at)); wait != look.want {
				t.Errorf("at %s: wait %s, want %s", look.at, wait, look.want)
			}
		}
		if wait := s.alive("n", false, at(time.Hour)); wait >= 0 {
			t.Errorf("nudged although all is well: %s", wait)
		}
		if len(s.byNode) != 0 {
			t.Error("a living agent is remembered")
		}
	})
}

func TestLifeOf(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	soon, past := now.Add(time.Second), now.Add(-time.Second)
	reported := &fettlev1alpha1.HostAgent{ID: "one"}
	for _, tc := range []struct {
		name    string
		agent   *fettlev1alpha1.HostAgent
		process watch.Process
		want    liveness.Life
	}{
		{"no agent has reported", nil, watch.Process{Holder: "one", Heard: true}, liveness.Unclear},
		{"nothing is known of a lease", reported, watch.Process{}, liveness.Unclear},
		{"another process holds the lease", reported, watch.Process{Holder: "two", Late: soon}, liveness.Gone},
		{"another process renews the lease", reported, watch.Process{Holder: "two", Heard: true, Late: soon}, liveness.Gone},
		{"it renews the lease", reported, watch.Process{Holder: "one", Heard: true, Late: past}, liveness.Lives},
		{"it may renew the lease yet", reported, watch.Process{Holder: "one", Late: soon}, liveness.Unclear},
		{"it has missed a beat", reported, watch.Process{Holder: "one", Late: past}, liveness.Gone},
		{"its lease is gone", reported, watch.Process{Late: past}, liveness.Gone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := lifeOf(tc.agent, tc.process, now); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
