package readiness

import "testing"

func TestOneEventForAllTaintsOfAWrite(t *testing.T) {
	c := newCluster(t, ruleNamed("a", "A"), ruleNamed("b", "A"))
	c.decide(nil, nodeNamed("n", ""))
	if len(c.told) != 1 {
		t.Fatalf("%d events, want 1: %v", len(c.told), c.told)
	}
	const want = "added taint r.example.com/a:NoSchedule: held by rule a; added taint r.example.com/b:NoSchedule: held by rule b"
	if e := c.told[0]; e.Reason != NoteTaintAdded || e.Note != want {
		t.Errorf("told %s: %s", e.Reason, e.Note)
	}
}
