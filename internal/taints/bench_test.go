package taints

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkLook is what a node's event costs in decisions: of rules that select it, one with a minimum hold, one with
// maxAge and one with maxTainted, among many that do not.
func BenchmarkLook(b *testing.B) {
	for _, others := range []int{0, 20, 500} {
		rules := []*apiRule{
			rule(ruleUID(0), "waits", taintKey("r.example.com/waits"), waits(time.Minute, time.Minute)),
			rule(ruleUID(1), "ages", taintKey("r.example.com/ages"), ages(time.Minute)),
			rule(ruleUID(2), "bounded", taintKey("r.example.com/bounded"), atMost("10%")),
		}
		for i := range others {
			rules = append(rules, rule(ruleUID(i+3), fmt.Sprintf("other-%d", i), taintKey(fmt.Sprintf("r.example.com/%d", i)), pool(fmt.Sprintf("pool-%d", i))))
		}
		set := compileAll(rules...)
		b.Run(fmt.Sprintf("beside %d rules of other nodes", others), func(b *testing.B) {
			n := carryOut(node(has("example.com/Network", "True")), Decide(node(has("example.com/Network", "True")), set, Seen{Now: noon}))
			var bounds Bounds
			bounds.Rebuild(set, []*corev1.Node{n})
			var history History
			b.ReportAllocs()
			for b.Loop() {
				history = history.Observe(n, set, Agent{}, noon)
				d := Decide(n, set, Seen{Now: noon, History: history, MayHold: func(r *Rule) bool { return bounds.MayHold(r.UID, n.Name) }})
				if !d.Empty() {
					b.Fatalf("a node that is well is changed: %+v", d)
				}
				bounds.Settle(n, set, d.Spared)
			}
		})
	}
}
