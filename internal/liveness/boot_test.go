package liveness

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestObserveBoots(t *testing.T) {
	type look struct{ node, agent string }
	for _, tc := range []struct {
		name     string
		looks    []look // a second apart
		unspoken bool
	}{
		{name: "one boot", looks: []look{{"1", "1"}, {"1", "1"}}},
		{name: "a boot without a word from the agent", looks: []look{{"1", "1"}, {"2", "1"}}, unspoken: true},
		{name: "it stays without a word", looks: []look{{"1", "1"}, {"2", "1"}, {"2", "1"}}, unspoken: true},
		{name: "the agent speaks after the boot", looks: []look{{"1", "1"}, {"2", "1"}, {"2", "2"}}},
		{name: "two boots without a word", looks: []look{{"1", "1"}, {"2", "1"}, {"3", "1"}}, unspoken: true},
		{name: "the agent speaks before its kubelet", looks: []look{{"1", "1"}, {"1", "2"}, {"2", "2"}}},
		{name: "a kubelet that has yet to tell of the agent's boot", looks: []look{{"1", "1"}, {"1", "2"}, {"1", "2"}}},
		{name: "and tells of one before that", looks: []look{{"1", "1"}, {"1", "3"}, {"2", "3"}, {"2", "3"}}},
		{name: "a difference at the first look says nothing", looks: []look{{"2", "1"}, {"2", "1"}}},
		{name: "nor does one that has always been", looks: []look{{"1", "x"}, {"2", "x"}}},
		{name: "a kubelet that tells no boot", looks: []look{{"", "1"}, {"", "1"}}},
		{name: "a kubelet that tells none any more", looks: []look{{"1", "1"}, {"", "1"}, {"1", "1"}}},
		{name: "a host without an agent", looks: []look{{"1", ""}, {"2", ""}}},
		{name: "an agent's first word is about this boot", looks: []look{{"1", ""}, {"2", ""}, {"2", "1"}}},
		{name: "an agent that speaks of the old boot and not of the new one", looks: []look{{"1", ""}, {"1", "1"}, {"2", "1"}}, unspoken: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b Boots
			for i, l := range tc.looks {
				b = ObserveBoots(b, l.node, l.agent, start.Add(time.Duration(i)*time.Second))
			}
			if unspoken := !b.Unspoken.IsZero(); unspoken != tc.unspoken {
				t.Errorf("unspoken: %v, want %v", unspoken, tc.unspoken)
			}
		})
	}
}

// Whatever the order in which boots of a machine are told by its kubelet and by its agent: when both tell of the last one, the
// agent has spoken; and while the agent tells of a later boot than its kubelet, it has, too.
func TestAnAgentThatSpeaksHasSpoken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		boot := func(n int) string { return string(rune('a' + n)) }
		var b Boots
		node, agent := 0, 0
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(time.Second)
			if rapid.Bool().Draw(t, "node") {
				node += rapid.IntRange(0, 2).Draw(t, "boots")
			}
			if rapid.Bool().Draw(t, "agent") {
				agent = rapid.IntRange(agent, max(agent, node)+1).Draw(t, "agent's boot")
			}
			b = ObserveBoots(b, boot(min(node, 25)), boot(min(agent, 25)), now)
			if agent >= node && !b.Unspoken.IsZero() {
				t.Fatalf("node at %d, agent at %d: unspoken", node, agent)
			}
		}
	})
}
