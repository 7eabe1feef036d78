package taints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Bounds counts, for each rule with maxTainted, the nodes that it selects and holds, so that asking whether it may hold one
// more costs the same in a fleet of any size. What it holds it keeps; a place that gets free goes to the first by name of
// the nodes that were spared. It must not be used concurrently. The zero value has no rules.
type Bounds struct {
	byRule map[types.UID]*tally
	// byNode are the rules that count a node.
	byNode map[string][]types.UID
}

// place is how a rule counts a node that it selects.
type place int

const (
	// free : not held, and need not be.
	free place = iota
	// held : held, or about to be.
	held
	// spared : would be held were there room.
	spared
)

type tally struct {
	maxTainted intstr.IntOrString
	places     map[string]place
	held       int
	// spared nodes by name. The first called of them have been told that there is room.
	spared []string
	called int
}

// Rebuild takes over the rules and counts all nodes anew. All nodes have to be decided afterwards.
func (b *Bounds) Rebuild(rules *Rules, nodes []*corev1.Node) {
	was := b.byRule
	b.byRule, b.byNode = map[types.UID]*tally{}, map[string][]types.UID{}
	for _, rule := range rules.byName {
		if rule.MaxTainted != nil {
			b.byRule[rule.UID] = &tally{maxTainted: *rule.MaxTainted, places: map[string]place{}}
		}
	}
	if len(b.byRule) == 0 {
		return
	}
	for _, node := range nodes {
		for _, rule := range rules.Selecting(node) {
			t := b.byRule[rule.UID]
			if t == nil {
				continue
			}
			at := placeOf(node, rule.UID, nil)
			if before := was[rule.UID]; before != nil && at == free {
				at = before.places[node.Name] // being written just now, or spared
			}
			b.enter(node.Name, rule.UID, at)
		}
	}
}

// MayHold reports whether a rule may hold a node too, and takes a place for it if so: Settle gives it back if it is not
// used.
func (b *Bounds) MayHold(rule types.UID, node string) bool {
	t := b.byRule[rule]
	if t == nil || t.places[node] == held {
		return true
	}
	ahead, _ := slices.BinarySearch(t.spared, node)
	if ahead >= t.room() {
		return false
	}
	b.enter(node, rule, held)
	return true
}

// Settle counts a node as it is after a decision; spared are the rules that spared it. It gives the nodes that may be held
// now.
func (b *Bounds) Settle(node *corev1.Node, rules *Rules, spared []types.UID) (called []string) {
	if len(b.byRule) == 0 {
		return nil
	}
	var selecting []types.UID
	for _, rule := range rules.Selecting(node) {
		if b.byRule[rule.UID] != nil {
			selecting = append(selecting, rule.UID)
		}
	}
	for _, uid := range slices.Clone(b.byNode[node.Name]) {
		if !slices.Contains(selecting, uid) {
			called = append(called, b.leave(node.Name, uid)...)
		}
	}
	for _, uid := range selecting {
		b.enter(node.Name, uid, placeOf(node, uid, spared))
		called = append(called, b.byRule[uid].call()...)
	}
	return called
}

// Forget drops a node that is gone. It gives the nodes that may be held now.
func (b *Bounds) Forget(node string) (called []string) {
	for _, uid := range slices.Clone(b.byNode[node]) {
		called = append(called, b.leave(node, uid)...)
	}
	return called
}

// Spares reports whether a rule spared a node when it was last decided.
func (b *Bounds) Spares(rule types.UID, node string) bool {
	t := b.byRule[rule]
	return t != nil && t.places[node] == spared
}

func placeOf(node *corev1.Node, rule types.UID, sparing []types.UID) place {
	switch {
	case ReadRecord(node).Names(rule):
		return held
	case slices.Contains(sparing, rule):
		return spared
	}
	return free
}

func (b *Bounds) enter(node string, rule types.UID, at place) {
	t := b.byRule[rule]
	if _, known := t.places[node]; !known {
		b.byNode[node] = append(b.byNode[node], rule)
	}
	t.remove(node)
	t.places[node] = at
	switch at {
	case held:
		t.held++
	case spared:
		i, _ := slices.BinarySearch(t.spared, node)
		t.spared = slices.Insert(t.spared, i, node)
	}
}

func (b *Bounds) leave(node string, rule types.UID) (called []string) {
	t := b.byRule[rule]
	t.remove(node)
	b.byNode[node] = slices.DeleteFunc(b.byNode[node], func(uid types.UID) bool { return uid == rule })
	if len(b.byNode[node]) == 0 {
		delete(b.byNode, node)
	}
	return t.call()
}

func (t *tally) remove(node string) {
	switch t.places[node] {
	case held:
		t.held--
	case spared:
		i, _ := slices.BinarySearch(t.spared, node)
		t.spared = slices.Delete(t.spared, i, i+1)
		if i < t.called {
			t.called--
		}
	}
	delete(t.places, node)
}

// room is how many more nodes the rule may hold.
func (t *tally) room() int {
	bound, err := intstr.GetScaledValueFromIntOrPercent(&t.maxTainted, len(t.places), true)
	if err != nil { // the API server takes no other text; a rule from before it was so strict has no bound
		return len(t.places)
	}
	return max(bound-t.held, 0)
}

// call gives the spared nodes that there is room for now, each once.
func (t *tally) call() []string {
	room := min(t.room(), len(t.spared))
	t.called = min(t.called, room)
	called := t.spared[t.called:room]
	t.called = room
	return slices.Clone(called)
}
