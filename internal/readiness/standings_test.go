package readiness

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// TestCountsAreThoseOfALookAtAllNodes lets nodes and rules come, change and go in any order, with writes that fail, and
// counts anew from what the nodes show in the end.
func TestCountsAreThoseOfALookAtAllNodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCluster(t)
		failing, made := map[string]bool{}, 0
		decideAll := func() {
			for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
				var fault error
				if failing[name] {
					fault = errors.New("no")
				}
				c.decide(fault, c.nodes[name])
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"a node comes, or changes": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4", "n5"}).Draw(rt, "node")
				n := c.nodes[name]
				if n == nil {
					n = nodeNamed(name, "")
				}
				n = n.DeepCopy()
				n.Labels["pool"] = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "pool")
				n.Status.Conditions = nil
				for _, t := range []corev1.NodeConditionType{"A", "B"} {
					if s := rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", ""}).Draw(rt, "status"); s != "" {
						n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: s})
					}
				}
				var fault error
				if failing[name] = rapid.IntRange(0, 3).Draw(rt, "fails") == 0; failing[name] {
					fault = errors.New("no")
				}
				c.decide(fault, n)
			},
			"a node goes": func(rt *rapid.T) {
				if len(c.nodes) == 0 {
					rt.Skip("there is none")
				}
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(c.nodes))).Draw(rt, "node")
				delete(c.nodes, name)
				c.memory.Forget(name)
				c.standings.Forget(name)
			},
			"a rule comes, or is edited": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"r1", "r2"}).Draw(rt, "rule")
				r := ruleNamed(name, rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "condition"))
				r.Spec.NodeSelector.MatchLabels["pool"] = readinessv1alpha1.LabelValue(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "pool"))
				r.Spec.DryRun, r.Spec.Suspend = rapid.Bool().Draw(rt, "dryRun"), rapid.IntRange(0, 3).Draw(rt, "suspend") == 0
				if rapid.Bool().Draw(rt, "bounded") {
					one := intstr.FromInt32(1)
					r.Spec.MaxTainted = &one
				}
				at := slices.IndexFunc(c.rules, func(r *apiRule) bool { return r.Name == name })
				if at < 0 {
					made++
					r.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", made))
					c.rules = append(c.rules, r)
				} else {
					r.UID, r.Generation = c.rules[at].UID, c.rules[at].Generation+1
					c.rules[at] = r
				}
				decideAll()
			},
			"a rule goes": func(rt *rapid.T) {
				if len(c.rules) == 0 {
					rt.Skip("there is none")
				}
				at := rapid.IntRange(0, len(c.rules)-1).Draw(rt, "rule")
				c.rules = slices.Delete(slices.Clone(c.rules), at, at+1)
				decideAll()
			},
			"": func(rt *rapid.T) {
				for _, r := range c.rules {
					if r.Spec.Suspend {
						continue
					}
					got, want := *c.status(r).Nodes, c.counted(r, failing)
					if r.Spec.DryRun { // whom its bound would spare is another test's
						got.Held, got.Spared = got.Held+got.Spared, 0
						want.Held, want.Spared = want.Held+want.Spared, 0
					}
					if got != want {
						rt.Fatalf("rule %s counts %+v, want %+v", r.Name, got, want)
					}
				}
			},
		})
	})
}

// counted looks at all nodes.
func (c *cluster) counted(r *apiRule, failing map[string]bool) (counts readinessv1alpha1.NodeCounts) {
	set := c.set()
	rule := set.Get(r.UID)
	for _, n := range c.nodes {
		if !rule.Selects(n) {
			continue
		}
		counts.Selected++
		switch {
		case rule.Fulfilled(n, c.memory.View(n, c.now)):
			counts.Ready++
		case c.memory.Spares(r.UID, n.Name):
			counts.Spared++
		default:
			counts.Held++
		}
		owed := taints.Decide(n, set, c.memory.View(n, c.now))
		ours := slices.ContainsFunc(owed.Changes, func(change taints.Change) bool { return slices.Contains(change.Rules, r.UID) })
		if failing[n.Name] && !r.Spec.DryRun && !owed.Empty() && (ours || len(owed.Changes) == 0) {
			counts.Failed++
		}
	}
	return counts
}

func TestNothingIsSaidOfARuleBeforeEveryNodeWasDecidedWithIt(t *testing.T) {
	r := ruleOf("A")
	c := newCluster(t, r)
	c.nodes["b"] = nodeNamed("b", "True")
	c.decide(nil, nodeNamed("a", "True"))
	complete := func() bool {
		rules := c.compiled.current.Load()
		nodes, err := listNodes(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.standings.settle(nodes, rules.version)
		return c.standings.view(r.UID, rules.byUID[r.UID].since).complete
	}
	if complete() {
		t.Error("one of two nodes is all")
	}
	c.decide(nil, c.nodes["b"])
	if !complete() {
		t.Error("both nodes are not all")
	}
	c.rules = append(c.rules, ruleNamed("other", "A"))
	c.set()
	if !complete() {
		t.Error("another rule takes this one back")
	}
	edited := r.DeepCopy()
	edited.Generation++
	c.rules[0] = edited
	c.set()
	if complete() {
		t.Error("an edited rule has reached nodes by itself")
	}
	c.decide(nil, c.nodes["a"], c.nodes["b"])
	if !complete() {
		t.Error("an edited rule is not done")
	}
}

func TestAStatusIsDueOnlyWhenSomethingAboutTheRuleChanged(t *testing.T) {
	r, other := ruleOf("A"), ruleNamed("other", "A")
	other.Spec.NodeSelector.MatchLabels["pool"] = "b"
	c := newCluster(t, r, other)
	c.decide(nil, nodeNamed("a", "True"), nodeNamed("b", "False"))
	look := func() { c.standings.view(r.UID, 1); c.standings.view(other.UID, 1) }
	look()
	c.changed = 0
	c.decide(nil, c.nodes["a"])
	if c.changed > 0 || c.standings.due(r.UID) {
		t.Error("a second look at a ready node changes something")
	}
	a := c.nodes["a"].DeepCopy()
	a.Status.Conditions[0].Status = "False"
	c.decide(nil, a)
	if c.changed != 1 || !c.standings.due(r.UID) || c.standings.due(other.UID) {
		t.Errorf("%d changes, due %v and %v", c.changed, c.standings.due(r.UID), c.standings.due(other.UID))
	}
	look()
	c.decide(nil, c.nodes["b"])
	if !c.standings.due(r.UID) {
		t.Error("how a held node falls short may be something else")
	}
}

func TestWhatARuleDidIsSummedUp(t *testing.T) {
	r := ruleOf("A")
	r.Spec.EnforcementMode = readinessv1alpha1.EnforcementModeBootstrapOnly
	c := newCluster(t, r)
	says := func(at time.Time) (string, time.Time) {
		due, next := c.standings.tell(r.UID, at)
		var lines []string
		for _, d := range due {
			lines = append(lines, d.reason+": "+d.words)
		}
		return strings.Join(lines, "\n"), next
	}
	for i := range 5000 {
		c.decide(nil, nodeNamed(fmt.Sprintf("n%04d", i), ""))
	}
	names := "n0000, n0001, n0002, n0003, n0004, n0005, n0006, n0007, n0008, n0009 and 4990 more"
	if got, next := says(noon); got != "TaintAdded: added taint r.example.com/r:NoSchedule to 5000 nodes: "+names || !next.IsZero() {
		t.Errorf("told %q, more at %v", got, next)
	}
	c.decide(nil, nodeNamed("one", ""))
	if got, next := says(noon.Add(time.Second)); got != "" || !next.Equal(noon.Add(tellPause)) {
		t.Errorf("told %q at once, more at %v", got, next)
	}
	c.decide(nil, nodeNamed("two", ""))
	ready := c.nodes["one"].DeepCopy()
	ready.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: "True"}}
	c.decide(nil, ready)
	if got, _ := says(noon.Add(2 * time.Second)); got != "BootstrapCompleted: bootstrap completed on 1 node: one\nTaintRemoved: removed taint r.example.com/r:NoSchedule from 1 node: one" {
		t.Errorf("told %q", got)
	}
	if got, _ := says(noon.Add(tellPause)); got != "TaintAdded: added taint r.example.com/r:NoSchedule to 2 nodes: one, two" {
		t.Errorf("told %q", got)
	}
	if got, next := says(noon.Add(time.Hour)); got != "" || !next.IsZero() || len(c.standings.byRule[r.UID].deeds) != 0 {
		t.Errorf("told %q, more at %v; kept %v", got, next, c.standings.byRule[r.UID].deeds)
	}
}

// TestEventsOfNodes gives what is told on the node of each judgement.
func TestEventsOfNodes(t *testing.T) {
	r := ruleOf("A")
	r.Spec.EnforcementMode = readinessv1alpha1.EnforcementModeBootstrapOnly
	c := newCluster(t, r)
	told := func() string {
		var lines []string
		for _, e := range c.told {
			lines = append(lines, e.Type+" "+e.Reason+" "+e.Action+" "+e.Regarding.Name+": "+e.Note)
		}
		c.told = nil
		return strings.Join(lines, "\n")
	}
	expect := func(what, want string) {
		t.Helper()
		if got := told(); got != want {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
	}
	c.decide(errors.New("refused"), nodeNamed("n", ""))
	expect("a write that fails", "Warning WriteFailed WriteNode n: could not be written; it is tried again: refused")
	c.decide(errors.New("refused"), nodeNamed("n", ""))
	expect("the same failure again", "")
	c.decide(errors.New("timeout"), nodeNamed("n", ""))
	expect("another failure", "Warning WriteFailed WriteNode n: could not be written; it is tried again: timeout")
	c.decide(nil, nodeNamed("n", ""))
	expect("a write", "Normal TaintAdded AddTaint n: added taint r.example.com/r:NoSchedule: held by rule r")
	c.decide(nil, c.nodes["n"])
	expect("nothing to do", "")
	ready := c.nodes["n"].DeepCopy()
	ready.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: "True"}}
	c.decide(nil, ready)
	expect("a bootstrap", "Normal TaintRemoved RemoveTaint n: removed taint r.example.com/r:NoSchedule: released by rule r\nNormal BootstrapCompleted CompleteBootstrap n: passed bootstrap-only rule r")
	c.decide(nil, c.nodes["n"])
	expect("a completed bootstrap", "")
	adopted := nodeNamed("m", "")
	adopted.Spec.Taints = []corev1.Taint{{Key: "r.example.com/r", Effect: "NoSchedule"}}
	c.decide(nil, adopted)
	expect("adoption", "Normal TaintAdopted AdoptTaint m: adopted taint r.example.com/r:NoSchedule, which was there already: held by rule r")
	c.decide(nil, c.nodes["m"])
	expect("an adopted taint", "")
}

// BenchmarkTake is one node's event, with 20 rules that select it, in fleets of both sizes and among many rules that do not.
func BenchmarkTake(b *testing.B) {
	for _, size := range []struct{ nodes, others int }{{100, 0}, {5000, 0}, {100, 480}} {
		b.Run(fmt.Sprintf("%d nodes, 20 rules and %d others", size.nodes, size.others), func(b *testing.B) {
			var rules []*apiRule
			for i := range 20 + size.others {
				r := ruleNamed(fmt.Sprintf("r%d", i), "A")
				if i >= 20 {
					r.Spec.NodeSelector.MatchLabels["pool"] = "b"
				}
				rules = append(rules, r)
			}
			c := newCluster(b, rules...)
			for i := range size.nodes {
				c.decide(nil, nodeNamed(fmt.Sprintf("n%04d", i), "True"))
			}
			set, n := c.compiled.current.Load().set, c.nodes["n0000"]
			for b.Loop() {
				c.standings.Take(Judgement{Was: n, Node: n, Rules: set, At: noon})
			}
		})
	}
}

// BenchmarkJudge is a pass over one rule, of which no, or every node is held.
func BenchmarkJudge(b *testing.B) {
	for _, status := range []corev1.ConditionStatus{"True", "False"} {
		b.Run(fmt.Sprintf("5000 nodes %s", status), func(b *testing.B) {
			r := ruleOf("A")
			c := newCluster(b, r)
			for i := range 5000 {
				c.decide(nil, nodeNamed(fmt.Sprintf("n%04d", i), status))
			}
			s := c.subject(r)
			for b.Loop() {
				s.view = c.standings.view(r.UID, 1)
				s.judge(noon)
			}
		})
	}
}

// objectsRead are objects of which nobody has looked at any until they are there.
type objectsRead struct{ ready corev1.ConditionStatus }

func (*objectsRead) Require([]apiRule) {}
func (o *objectsRead) Verdict(*corev1.Node, readinessv1alpha1.ObjectRequirement) (corev1.ConditionStatus, string) {
	return o.ready, "an object"
}

// TestNothingIsSaidOfNodesThatAwaitAnObject: a status waits for the first look, in a dry run too, and is then of all nodes.
func TestNothingIsSaidOfNodesThatAwaitAnObject(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		r := ruleOf("A")
		r.Spec.DryRun = dryRun
		r.Spec.Objects = []readinessv1alpha1.ObjectRequirement{{Name: "driver"}}
		objects := &objectsRead{}
		c := newCluster(t, r)
		c.memory.Objects = objects
		nodes := []*corev1.Node{nodeNamed("a", "True"), nodeNamed("b", "True"), nodeNamed("c", "False")}
		c.decide(nil, nodes...)
		if v := c.subject(r).view; v.complete || v.counts.Held != 1 || v.counts.Selected != 3 {
			t.Errorf("dry run %v: before the first look: %+v", dryRun, v)
		}
		objects.ready, c.changed = "False", 0
		c.decide(nil, c.nodes["a"], c.nodes["b"], c.nodes["c"])
		if v := c.subject(r).view; !v.complete || v.counts.Held != 3 || c.changed == 0 {
			t.Errorf("dry run %v: after it: %+v", dryRun, v)
		}
	}
}
