package controller

import (
	"fmt"
	"testing"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
)

// TestMaxTaintedBoundsWhatIsNotNew: nodes that were there before a rule was as it is are no more new to it than others, on
// the real API server, whose clock and record of writers tell.
func TestMaxTaintedBoundsWhatIsNotNew(t *testing.T) {
	w := newWorld(t)
	w.run(t, testOptions(t))
	held := "r.example.com/tried=pending:NoSchedule"
	heldNodes := func(of int) (held int) {
		t.Helper()
		for i := range of {
			if taintedWith("r.example.com/tried")(w.getNode(t, fmt.Sprintf("tried-%d", i))) {
				held++
			}
		}
		return held
	}
	is := func(counts readinessv1alpha1.NodeCounts) {
		t.Helper()
		w.status(t, "tried", "True", readiness.ReasonEnforced, counts)
		w.quiet(t)
		if got := heldNodes(int(counts.Selected)); got != int(counts.Held) {
			t.Errorf("%d nodes are held, want %d", got, counts.Held)
		}
	}
	w.node(t, "tried-0", "tried")
	w.rule(t, "tried", "tried", maxTainted("1"), func(r *rule) { r.Spec.DryRun = true })
	w.quiet(t)
	for i := 1; i < 4; i++ {
		w.node(t, fmt.Sprintf("tried-%d", i), "tried")
	}
	w.editRule(t, "tried", func(r *rule) { r.Spec.DryRun = false })
	is(readinessv1alpha1.NodeCounts{Selected: 4, Held: 1, Spared: 3})

	w.editRule(t, "tried", func(r *rule) { r.Spec.MaxTainted, r.Spec.Conditions[0].RequiredStatus = nil, "Unknown" })
	is(readinessv1alpha1.NodeCounts{Selected: 4, Ready: 4})
	w.editRule(t, "tried", func(r *rule) { r.Spec.Conditions[0].RequiredStatus = "True"; maxTainted("50%")(r) })
	is(readinessv1alpha1.NodeCounts{Selected: 4, Held: 2, Spared: 2})
	w.node(t, "tried-4", "tried") // it is of a later second than the edit
	w.tainted(t, "tried-4", held)
}
