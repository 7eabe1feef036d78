package controller

import (
	"testing"
	"time"
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
