package taints

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A node that is not held yet, since what ceased has not lasted, has not passed its bootstrap by that; not after a restart
// of the controller either, when what is not held counts as met.
func TestPatienceIsNoPassing(t *testing.T) {
	r := rule(uidA, "network", bootstrapOnly, waits(time.Minute, 0))
	rules := compileAll(r)
	n := node(has("example.com/Network", "False"))
	n.Annotations = map[string]string{JudgedAnnotation: encodeJudged([]types.UID{uidA})}
	decide := func(at time.Time, h History) (Decision, History) {
		h = h.Observe(n, rules, Agent{}, at)
		return Decide(n, rules, Seen{Now: at, History: h}), h
	}
	d, h := decide(noon, History{})
	if len(d.Changes) > 0 || d.Annotations[rules.byName[0].markerKey] != nil {
		t.Errorf("within the wait: %+v", d)
	}
	if d, _ = decide(noon.Add(time.Minute), h); len(d.Changes) != 1 || d.Changes[0].Action != Added {
		t.Errorf("after it: %+v", d)
	}
}
