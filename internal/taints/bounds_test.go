package taints

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// fleet is nodes under one bounded rule, as a controller keeps them.
type fleet struct {
	nodes  map[string]*corev1.Node
	rules  *Rules
	bounds Bounds
	queue  []string
	// pick says which of the first so many in the queue is next; nil for the first.
	pick func(of int) int
	// heldMore is called when a node that the rule knew already comes to be held; nil for not.
	heldMore func(name string)
}

func newFleet(bound string, names ...string) *fleet {
	f := &fleet{nodes: map[string]*corev1.Node{}}
	for _, name := range names {
		f.join(name, "True")
	}
	f.bound(bound)
	return f
}

// join adds a node, known to no rule.
func (f *fleet) join(name string, status corev1.ConditionStatus) {
	n := node(has("example.com/Network", status))
	n.Name = name
	f.nodes[name] = n
	f.queue = append(f.queue, name)
}

// say changes the condition of nodes.
func (f *fleet) say(status corev1.ConditionStatus, names ...string) {
	for _, name := range names {
		n := f.nodes[name].DeepCopy()
		n.Status.Conditions[0].Status = status
		f.nodes[name] = n
		f.queue = append(f.queue, name)
	}
}

func (f *fleet) leave(name string) {
	delete(f.nodes, name)
	f.queue = append(f.queue, f.bounds.Forget(name)...)
}

func (f *fleet) bound(bound string) { f.rule(atMost(bound)) }

// rule makes the rule be another one.
func (f *fleet) rule(changes ...edit[apiRule]) {
	f.rules = compileAll(rule(uidA, "network", changes...))
	f.bounds.Rebuild(f.rules, slices.Collect(maps.Values(f.nodes)))
	f.queue = slices.Sorted(maps.Keys(f.nodes))
}

// settle decides every node that is waiting for it, and those that are called for.
func (f *fleet) settle() {
	for len(f.queue) > 0 {
		i := 0
		if f.pick != nil {
			i = f.pick(len(f.queue))
		}
		name := f.queue[i]
		f.queue = slices.Delete(f.queue, i, i+1)
		n := f.nodes[name]
		if n == nil {
			continue
		}
		d := Decide(n, f.rules, Seen{Now: noon, MayHold: func(r *Rule) bool { return f.bounds.MayHold(r.UID, name) }})
		f.nodes[name] = carryOut(n, d)
		if more := len(f.nodes[name].Spec.Taints) > len(n.Spec.Taints); more && f.heldMore != nil && slices.Contains(readJudged(n), uidA) {
			f.heldMore(name)
		}
		f.queue = append(f.queue, f.bounds.Settle(f.nodes[name], f.rules, d.Spared)...)
	}
}

func (f *fleet) held() string {
	var held []string
	for name, n := range f.nodes {
		if len(n.Spec.Taints) > 0 {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return strings.Join(held, " ")
}

// written says when somebody wrote the rule, or a subresource of it. Nodes are of an hour before noon.
func written(at time.Time, subresource string) edit[apiRule] {
	return func(r *apiRule) {
		r.ManagedFields = append(r.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: &metav1.Time{Time: at}})
	}
}

func TestBounds(t *testing.T) {
	early := written(noon.Add(-2*time.Hour), "")
	ten := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for _, tc := range []struct {
		name  string
		bound string
		do    func(*fleet)
		want  string // names of the nodes held
	}{
		{name: "no more than a number are held", bound: "2", do: func(f *fleet) { f.say("False", ten...) }, want: "a b"},
		{name: "a share is rounded up", bound: "15%", do: func(f *fleet) { f.say("False", ten...) }, want: "a b"},
		{name: "none", bound: "0", do: func(f *fleet) { f.say("False", ten...) }},
		{name: "all", bound: "100%", do: func(f *fleet) { f.say("False", ten...) }, want: strings.Join(ten, " ")},
		{name: "a new rule does not take the whole fleet", bound: "2", do: func(f *fleet) {
			for _, n := range f.nodes {
				delete(n.Annotations, JudgedAnnotation)
			}
			f.bounds = Bounds{}
			f.rule(atMost("2"), func(r *apiRule) { r.CreationTimestamp = metav1.NewTime(noon) })
			f.say("False", ten...)
		}, want: "a b"},
		{name: "nor does one whose bound comes with a condition that is wrong", bound: "2", do: func(f *fleet) {
			f.rule(early)
			f.settle()
			f.rule(atMost("2"), needs("example.com/Typo", "True"), early, written(noon, ""))
		}, want: "a b"},
		{name: "nodes that joined during a dry run are not new when it ends", bound: "1", do: func(f *fleet) {
			f.rule(atMost("1"), early, dryRun)
			f.join("k", "False")
			f.join("l", "False")
			f.settle()
			f.rule(atMost("1"), early, written(noon, ""))
		}, want: "k"},
		{name: "nor are those that joined during a suspension", bound: "1", do: func(f *fleet) {
			f.rule(atMost("1"), early, suspended)
			f.join("k", "False")
			f.join("l", "False")
			f.settle()
			f.rule(atMost("1"), early, written(noon, ""))
		}, want: "k"},
		{name: "a status that is written makes no node old", bound: "1", do: func(f *fleet) {
			f.rule(atMost("1"), early, written(noon, "status"))
			f.say("False", "c", "d")
			f.settle()
			f.join("k", "False")
		}, want: "c k"},
		{name: "a new node is held in any case", bound: "1", do: func(f *fleet) {
			f.say("False", "c", "d")
			f.settle()
			f.join("k", "False")
		}, want: "c k"},
		{name: "what is held stays, whatever comes", bound: "2", do: func(f *fleet) {
			f.say("False", "i", "j")
			f.settle()
			f.say("False", ten...)
		}, want: "i j"},
		{name: "when a held node recovers the first by name of the spared follows", bound: "2", do: func(f *fleet) {
			f.say("False", "i", "j", "d", "b", "c")
			f.settle()
			f.say("True", "i")
		}, want: "b j"},
		{name: "a node that falls ill later does not get ahead of them", bound: "1", do: func(f *fleet) {
			f.say("False", "i", "b")
			f.settle()
			f.say("True", "i")
			f.say("False", "j")
		}, want: "b"},
		{name: "but for one with an earlier name", bound: "1", do: func(f *fleet) {
			f.say("False", "i", "b")
			f.settle()
			f.say("True", "i")
			f.say("False", "a")
		}, want: "a"},
		{name: "a spared node that recovers is not held when there is room", bound: "1", do: func(f *fleet) {
			f.say("False", "i", "b", "c")
			f.settle()
			f.say("True", "b")
			f.settle()
			f.say("True", "i")
		}, want: "c"},
		{name: "a called node that recovers passes the place on", bound: "2", do: func(f *fleet) {
			f.say("False", "i", "j", "b", "c", "d")
			f.settle()
			f.say("True", "i", "j", "b")
		}, want: "c d"},
		{name: "a spared node that leaves does not take the place with it", bound: "1", do: func(f *fleet) {
			f.say("False", "i", "b", "c")
			f.settle()
			f.leave("b")
			f.leave("i")
		}, want: "c"},
		{name: "a higher bound holds more", bound: "1", do: func(f *fleet) {
			f.say("False", "i", "b", "c")
			f.settle()
			f.bound("2")
		}, want: "b i"},
		{name: "a lower bound releases none", bound: "3", do: func(f *fleet) {
			f.say("False", "i", "b", "c")
			f.settle()
			f.bound("1")
		}, want: "b c i"},
		{name: "more nodes make a share larger", bound: "10%", do: func(f *fleet) {
			f.say("False", "a", "b")
			f.settle()
			f.join("k", "True")
		}, want: "a b"},
		{name: "no bound holds all", bound: "1", do: func(f *fleet) {
			f.say("False", "a", "b", "c")
			f.settle()
			f.rules = compileAll(rule(uidA, "network"))
			f.bounds.Rebuild(f.rules, nil)
			f.queue = slices.Sorted(maps.Keys(f.nodes))
		}, want: "a b c"},
		{name: "nodes of other rules do not count", bound: "1", do: func(f *fleet) {
			f.say("False", "a", "b")
			f.settle()
			relabel := f.nodes["a"].DeepCopy()
			relabel.Labels["pool"] = "control"
			f.nodes["a"] = relabel
			f.queue = append(f.queue, "a")
		}, want: "b"},
		{name: "after a restart what is held counts", bound: "2", do: func(f *fleet) {
			f.say("False", "i", "j", "a")
			f.settle()
			f.bounds = Bounds{}
			f.bound("2")
		}, want: "i j"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(tc.bound, ten...)
			f.settle()
			tc.do(f)
			f.settle()
			if got := f.held(); got != tc.want {
				t.Errorf("held: %s, want: %s", got, tc.want)
			}
			for name, n := range f.nodes {
				r := f.rules.All()[0]
				spared := r.MaxTainted != nil && r.Selects(n) && !r.Fulfilled(n, Seen{}) && len(n.Spec.Taints) == 0
				if got := f.bounds.Spares(uidA, name); got != spared {
					t.Errorf("node %s is said to be spared: %v, is: %v", name, got, spared)
				}
			}
		})
	}
}

// A place that was taken for a node that could not be written is free again.
func TestBoundsGiveBackWhatAFailedWriteTook(t *testing.T) {
	f := newFleet("1", "a", "b")
	f.settle()
	f.say("False", "a", "b")
	f.queue = nil
	for range 2 {
		if !f.bounds.MayHold(uidA, "a") || f.bounds.MayHold(uidA, "b") {
			t.Fatal("the place is not the first one's")
		}
	}
	if called := f.bounds.Settle(f.nodes["b"], f.rules, []types.UID{uidA}); len(called) > 0 {
		t.Fatalf("called for a place that is taken: %v", called)
	}
	if called := f.bounds.Settle(f.nodes["a"], f.rules, nil); !slices.Equal(called, []string{"b"}) {
		t.Fatalf("called: %v", called)
	}
	if !f.bounds.MayHold(uidA, "b") {
		t.Error("the place is still taken")
	}
}

// Rules may change while a node is being written: its place stays taken.
func TestBoundsKeepPlacesOverAChangeOfRules(t *testing.T) {
	f := newFleet("1", "a", "b")
	f.settle()
	f.say("False", "a", "b")
	if !f.bounds.MayHold(uidA, "a") {
		t.Fatal("there is no place")
	}
	f.bound("1")
	if f.bounds.MayHold(uidA, "b") {
		t.Error("the place was given away twice")
	}
	f.settle()
	if f.held() != "a" {
		t.Errorf("held: %s", f.held())
	}
}

// Whatever happens, in whatever order nodes are looked at: what is held stays held while it has to be; the bound is
// exceeded by new nodes alone; and nobody is spared while there is room.
func TestBoundsHoldWhatTheyMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		status := rapid.SampledFrom([]corev1.ConditionStatus{"True", "False"})
		limit := rapid.IntRange(0, 4).Draw(t, "bound")
		f := newFleet(fmt.Sprint(limit), "a", "b", "c", "d")
		f.pick = func(of int) int { return rapid.IntRange(0, of-1).Draw(t, "next") }
		f.settle()
		f.heldMore = func(name string) {
			if held := strings.Fields(f.held()); len(held) > limit {
				t.Fatalf("bound %d: %s came to be held, and now %v are", limit, name, held)
			}
		}
		var before []string
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch n := name.Draw(t, "node"); rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				if f.nodes[n] == nil {
					f.join(n, status.Draw(t, "status"))
				}
			case 1:
				f.leave(n)
			case 2:
				limit = rapid.IntRange(0, 4).Draw(t, "bound")
				f.bound(fmt.Sprint(limit))
			default:
				if f.nodes[n] != nil {
					f.say(status.Draw(t, "status"), n)
				}
			}
			if rapid.Bool().Draw(t, "more before anything is looked at") {
				continue
			}
			f.settle()
			held := strings.Fields(f.held())
			for _, n := range before {
				if f.nodes[n] != nil && f.nodes[n].Status.Conditions[0].Status == "False" && !slices.Contains(held, n) {
					t.Fatalf("%s was let go in favour of another: %v -> %v", n, before, held)
				}
			}
			for n, is := range f.nodes {
				if is.Status.Conditions[0].Status == "False" && !slices.Contains(held, n) && len(held) < limit {
					t.Fatalf("bound %d: %v are held and %s is spared", limit, held, n)
				}
			}
			before = held
		}
	})
}

func BenchmarkBoundsOf5000Nodes(b *testing.B) {
	f := &fleet{nodes: map[string]*corev1.Node{}}
	for i := range 5000 {
		f.join(fmt.Sprintf("n%04d", i), "False")
	}
	f.bound("10%")
	f.settle()
	n := f.nodes["n2500"]
	b.ReportAllocs()
	for b.Loop() {
		f.bounds.Settle(n, f.rules, nil)
	}
}
