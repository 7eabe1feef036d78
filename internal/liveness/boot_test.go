package liveness

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestObserveBoots(t *testing.T) {
	type look struct {
		node, agent string
		life        Life
	}
	for _, tc := range []struct {
		name     string
		looks    []look // a second apart
		unspoken bool
		open     bool
	}{
		{name: "one boot", looks: []look{{"1", "1", Unclear}, {"1", "1", Unclear}}},
		{name: "a boot without a word from the agent", looks: []look{{"1", "1", Unclear}, {"2", "1", Unclear}}, unspoken: true},
		{name: "it stays without a word", looks: []look{{"1", "1", Unclear}, {"2", "1", Unclear}, {"2", "1", Unclear}}, unspoken: true},
		{name: "the agent speaks after the boot", looks: []look{{"1", "1", Unclear}, {"2", "1", Unclear}, {"2", "2", Unclear}}},
		{name: "two boots without a word", looks: []look{{"1", "1", Unclear}, {"2", "1", Unclear}, {"3", "1", Unclear}}, unspoken: true},
		{name: "the agent speaks before its kubelet", looks: []look{{"1", "1", Unclear}, {"1", "2", Unclear}, {"2", "2", Unclear}}},
		{name: "a kubelet that has yet to tell of the agent's boot", looks: []look{{"1", "1", Unclear}, {"1", "2", Unclear}, {"1", "2", Unclear}}},
		{name: "and tells of one before that", looks: []look{{"1", "1", Unclear}, {"1", "3", Unclear}, {"2", "3", Unclear}, {"2", "3", Unclear}}},
		{name: "a difference at the first look says nothing", looks: []look{{"2", "1", Unclear}, {"2", "1", Unclear}}, open: true},
		{name: "unless the agent's process is gone", looks: []look{{"2", "1", Gone}}, unspoken: true},
		{name: "or is found to be", looks: []look{{"2", "1", Unclear}, {"2", "1", Gone}}, unspoken: true},
		{name: "it lives, so that its kubelet is late", looks: []look{{"2", "1", Unclear}, {"2", "1", Lives}, {"2", "1", Gone}}},
		{name: "a process that goes after both agreed has not spoken of a boot that never was", looks: []look{{"1", "1", Lives}, {"1", "1", Gone}}},
		{name: "one that differed and speaks is heard", looks: []look{{"2", "1", Gone}, {"2", "2", Unclear}}},
		{name: "a difference that has always been says nothing while the agent lives", looks: []look{{"1", "x", Lives}, {"2", "x", Lives}}},
		{name: "a kubelet that tells no boot", looks: []look{{"", "1", Unclear}, {"", "1", Unclear}}},
		{name: "a kubelet that tells none any more", looks: []look{{"1", "1", Unclear}, {"", "1", Unclear}, {"1", "1", Unclear}}},
		{name: "a host without an agent", looks: []look{{"1", "", Unclear}, {"2", "", Unclear}}},
		{name: "an agent's first word is about this boot", looks: []look{{"1", "", Unclear}, {"2", "", Unclear}, {"2", "1", Unclear}}},
		{name: "an agent that speaks of the old boot and not of the new one", looks: []look{{"1", "", Unclear}, {"1", "1", Unclear}, {"2", "1", Unclear}}, unspoken: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b Boots
			for i, l := range tc.looks {
				b = ObserveBoots(b, l.node, l.agent, l.life, start.Add(time.Duration(i)*time.Second))
			}
			if unspoken := !b.Unspoken.IsZero(); unspoken != tc.unspoken || b.Undecided != tc.open {
				t.Errorf("unspoken: %v, undecided: %v; want %v, %v", unspoken, b.Undecided, tc.unspoken, tc.open)
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
			life := Unclear
			if agent >= node && rapid.Bool().Draw(t, "heard") { // only a process of this boot can be
				life = Lives
			}
			b = ObserveBoots(b, boot(min(node, 25)), boot(min(agent, 25)), life, now)
			if agent >= node && !b.Unspoken.IsZero() {
				t.Fatalf("node at %d, agent at %d: unspoken", node, agent)
			}
		}
	})
}
