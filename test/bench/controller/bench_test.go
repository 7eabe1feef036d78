package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestSmallRun runs parts of the benchmark at a small size and asserts what holds at any speed: every taint is right in the
// end, a change costs one write of its node at most, and a restart changes nothing. What it measures says nothing.
func TestSmallRun(t *testing.T) {
	var out strings.Builder
	b, stop, err := open(t.Context(), &out, sizes{nodes: 24, burst: 12, flapping: 6, rules: 4, pairs: 1, span: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	// measure runs a part and gives what the controller asked for meanwhile, and how many conditions were changed.
	measure := func(part func(*bench, context.Context) error) (controlplane.Requests, int) {
		t.Helper()
		mark, err := b.mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		changes := b.ours.changes.Load()
		if err := part(b, t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.check(t.Context()); err != nil {
			t.Error(err)
		}
		since, err := b.requestsSince(t.Context(), mark)
		if err != nil {
			t.Fatal(err)
		}
		return since, int(b.ours.changes.Load() - changes)
	}
	nodeWrites := func(what string, r controlplane.Requests, least, most int) {
		t.Helper()
		if got := r.Counts()["patch nodes"]; got < least || got > most {
			t.Errorf("%s: %d writes of nodes, want %d to %d\n%s", what, got, least, most, r)
		}
	}

	joined, _ := measure((*bench).joinFirst)
	// A node gets all taints in one write and loses them in another; a reporter that is quick saves both.
	nodeWrites("join", joined, 0, 2*12)
	if got := joined.Counts()["create hosts"]; got < 12 { // of the nodes of the bare loop, some may come when we are gone
		t.Errorf("%d Hosts were made for 12 nodes and more", got)
	}

	burst, changes := measure((*bench).allAtOnce)
	nodeWrites("all at once", burst, changes, changes)

	edited, _ := measure((*bench).editRule)
	nodeWrites("edit of a rule there and back", edited, 2*12, 2*12)

	rest, _ := measure((*bench).joinRest)
	nodeWrites("join of the rest", rest, 0, 2*12)

	restarted, _ := measure((*bench).restart)
	for _, r := range restarted.Writes() {
		leadership := r.Resource == "leases" || r.Resource == "events" && r.Namespace == namespace
		if !leadership {
			t.Errorf("a restart wrote: %s %s", r.What(), r.Name)
		}
	}

	steady, changes := measure((*bench).steadyWithLeases)
	nodeWrites("steady", steady, 1, changes)

	flapped, changes := measure((*bench).flap)
	nodeWrites("flapping", flapped, 1, changes)
}
