package readiness

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fettle-dev/fettle/internal/taints"
)

// ageing are rules of which one asks for condition A of at most a minute's age.
func ageing(t *testing.T) *taints.Rules {
	t.Helper()
	r := ruleOf("A")
	r.Spec.Conditions[0].MaxAge = &metav1.Duration{Duration: time.Minute}
	return rulesOf(t, r)
}

func rulesOf(t *testing.T, r *apiRule) *taints.Rules {
	t.Helper()
	rule, err := taints.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return taints.NewRules(rule)
}

func beating(n *corev1.Node, at time.Time) *corev1.Node {
	n = n.DeepCopy()
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: at}
	return n
}

func TestMemoryDoubtsSilenceUntilALiveReadConfirmsIt(t *testing.T) {
	rules, n, now := ageing(t), nodeNamed("a", "True"), noon
	holds := func(m *Memory) bool {
		return !rules.All()[0].Fulfilled(n, m.Look(n, rules, taints.Agent{}, now))
	}
	m := &Memory{}
	if m.Doubts(n, rules, now) || holds(m) {
		t.Fatal("a fresh condition is doubted, or does not count")
	}
	now = now.Add(2 * time.Minute)
	if !m.Doubts(n, rules, now) {
		t.Fatal("an old condition is not doubted")
	}
	n = beating(n, noon)
	m.Confirm(n, rules, now)
	if m.Doubts(n, rules, now) || holds(m) {
		t.Error("a heartbeat that the cache lacks does not count")
	}
	now = now.Add(2 * time.Minute)
	m.Confirm(n, rules, now)
	if m.Doubts(n, rules, now) || !holds(m) {
		t.Error("a confirmed silence does not count")
	}
	if n = beating(n, noon.Add(time.Second)); !m.Hear(n, rules, now) {
		t.Error("a reporter that is back is not worth a look")
	}
	if holds(m) {
		t.Error("a reporter that is back does not count")
	}
}

func TestMemoryCountsNoSilenceWhileNothingCouldBeSeen(t *testing.T) {
	rules, n, now := ageing(t), nodeNamed("a", "True"), noon
	var blind time.Time
	m := &Memory{Blind: func() time.Time { return blind }}
	m.Doubts(n, rules, now)
	blind = noon.Add(5 * time.Minute)
	for _, tc := range []struct {
		after    time.Duration
		doubtful bool
	}{{5 * time.Minute, false}, {6 * time.Minute, false}, {6*time.Minute + time.Second, true}} {
		if got := m.Doubts(n, rules, now.Add(tc.after)); got != tc.doubtful {
			t.Errorf("%s after the last heartbeat, blind until minute 5: doubtful %v", tc.after, got)
		}
	}
}

func TestMemoryHearsNobodyItHasNotLookedAt(t *testing.T) {
	rules, n := ageing(t), nodeNamed("a", "True")
	m := &Memory{}
	if m.Hear(n, rules, noon) || len(m.histories) > 0 {
		t.Error("a node that no decision was made for is remembered")
	}
	m.Look(n, rules, taints.Agent{}, noon)
	m.Forget(n.Name)
	if len(m.histories) > 0 {
		t.Error("a node that is gone is remembered")
	}
}

func TestMemoryCallsTheSparedWhenThereIsRoom(t *testing.T) {
	r := ruleOf("A")
	r.Spec.MaxTainted = new(intstr.FromInt32(1))
	rules := rulesOf(t, r)
	m := &Memory{}
	nodes := map[string]*corev1.Node{}
	decide := func(name string, status corev1.ConditionStatus) (called []string) {
		n := nodes[name].DeepCopy()
		n.Status.Conditions[0].Status = status
		d := taints.Decide(n, rules, m.Look(n, rules, taints.Agent{}, noon))
		nodes[name] = after(n, d)
		return m.Settle(nodes[name], rules, d)
	}
	for _, name := range []string{"a", "b"} {
		nodes[name] = nodeNamed(name, "True")
		decide(name, "True")
	}
	m.Rebuild(rules, []*corev1.Node{nodes["a"], nodes["b"]})
	decide("b", "False")
	decide("a", "False")
	if len(nodes["b"].Spec.Taints) != 1 || len(nodes["a"].Spec.Taints) != 0 || !m.Spares(r.UID, "a") {
		t.Fatalf("b: %v, a: %v, a is spared: %v", nodes["b"].Spec.Taints, nodes["a"].Spec.Taints, m.Spares(r.UID, "a"))
	}
	if called := decide("b", "True"); !slices.Equal(called, []string{"a"}) {
		t.Errorf("called: %v", called)
	}
	decide("b", "False")
	decide("a", "False")
	if len(nodes["a"].Spec.Taints) != 1 {
		t.Error("the place was not kept for the node that was called")
	}
	if called := m.Forget("a"); !slices.Equal(called, []string{"b"}) {
		t.Errorf("called: %v", called)
	}
}
