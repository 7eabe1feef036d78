package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/test/controlplane"
)

func lasting(adding, removing time.Duration) func(*rule) {
	return func(r *rule) {
		r.Spec.Conditions[0].For = &readinessv1alpha1.Hold{Adding: &metav1.Duration{Duration: adding}, Removing: &metav1.Duration{Duration: removing}}
	}
}

func maxAge(age time.Duration) func(*rule) {
	return func(r *rule) { r.Spec.Conditions[0].MaxAge = &metav1.Duration{Duration: age} }
}

func maxTainted(bound string) func(*rule) {
	return func(r *rule) { r.Spec.MaxTainted = new(intstr.Parse(bound)) }
}

func suspend(is bool) func(*rule) { return func(r *rule) { r.Spec.Suspend = is } }

// beat renews the heartbeat of a node's condition and nothing else.
func (w *world) beat(t testing.TB, node, conditionType string, at time.Time) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	w.patch(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"lastHeartbeatTime":%q}]}}`, conditionType, at.UTC().Format(time.RFC3339)), "status")
}

func (w *world) booted(t testing.TB, node, boot string) {
	t.Helper()
	w.patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, boot), "status")
}

// settled waits until the controller has looked at the rule as it is now.
func (w *world) settled(t testing.TB, name string) {
	t.Helper()
	w.eventually(t, "rule "+name+" is taken over", func() (bool, string) {
		r := w.getRule(t, name)
		return r.Status.ObservedGeneration == r.Generation, fmt.Sprint(r.Status.ObservedGeneration)
	})
}

// TestRuleFields runs one controller over nodes of one pool for each field that the node readiness controller lacks.
func TestRuleFields(t *testing.T) {
	w := newWorld(t)
	stop := w.run(t, testOptions(t))

	t.Run("suspend leaves nodes as they are until it is lifted", func(t *testing.T) {
		w.node(t, "suspend-1", "suspend")
		w.node(t, "suspend-2", "suspend")
		w.condition(t, "suspend-2", network, "True")
		w.rule(t, "suspend", "suspend")
		w.tainted(t, "suspend-1", "r.example.com/suspend=pending:NoSchedule")
		w.editRule(t, "suspend", suspend(true))
		w.settled(t, "suspend")
		w.condition(t, "suspend-1", network, "True")
		w.condition(t, "suspend-2", network, "False")
		w.quiet(t)
		w.tainted(t, "suspend-1", "r.example.com/suspend=pending:NoSchedule")
		w.tainted(t, "suspend-2")
		w.editRule(t, "suspend", suspend(false))
		w.tainted(t, "suspend-1")
		w.tainted(t, "suspend-2", "r.example.com/suspend=pending:NoSchedule")
	})

	t.Run("several taints come, move and go together", func(t *testing.T) {
		w.node(t, "several", "several")
		also := func(keys ...string) func(*rule) {
			return func(r *rule) {
				r.Spec.Taints = nil
				for _, key := range keys {
					r.Spec.Taints = append(r.Spec.Taints, readinessv1alpha1.TaintSpec{Key: key, Effect: "NoSchedule"})
				}
			}
		}
		w.rule(t, "several", "several", also("startup.example.com/a", "startup.example.com/b"))
		versions := w.versions(t, "several")
		whole := "r.example.com/several=pending:NoSchedule startup.example.com/a=:NoSchedule startup.example.com/b=:NoSchedule"
		seen := until(t, versions, "all taints", func(n *corev1.Node) bool { return taintsOf(n) == whole })
		w.editRule(t, "several", also("startup.example.com/b", "startup.example.com/c"))
		moved := "r.example.com/several=pending:NoSchedule startup.example.com/b=:NoSchedule startup.example.com/c=:NoSchedule"
		seen = append(seen, until(t, versions, "the moved taints", func(n *corev1.Node) bool { return taintsOf(n) == moved })...)
		w.condition(t, "several", network, "True")
		seen = append(seen, until(t, versions, "no taints", func(n *corev1.Node) bool { return taintsOf(n) == "" })...)
		for _, n := range seen {
			if got := taintsOf(n); got != "" && got != whole && got != moved {
				t.Errorf("a version has only some: %s", got)
			}
		}
	})

	t.Run("eviction waits for its acknowledgement, and nothing is free in between", func(t *testing.T) {
		w.node(t, "eviction", "eviction")
		w.rule(t, "eviction", "eviction", func(r *rule) { r.Spec.Taint.Effect = "NoExecute" })
		w.tainted(t, "eviction", "r.example.com/eviction=pending:NoSchedule")
		versions := w.versions(t, "eviction")
		w.editRule(t, "eviction", func(r *rule) { r.Spec.AllowEviction = true })
		seen := until(t, versions, "NoExecute", func(n *corev1.Node) bool { return taintsOf(n) == "r.example.com/eviction=pending:NoExecute" })
		w.editRule(t, "eviction", func(r *rule) { r.Spec.AllowEviction = false })
		seen = append(seen, until(t, versions, "NoSchedule", func(n *corev1.Node) bool { return taintsOf(n) == "r.example.com/eviction=pending:NoSchedule" })...)
		for _, n := range seen {
			if taintsOf(n) == "" {
				t.Errorf("a version is without the taint: %s", describe(seen))
			}
		}
	})

	t.Run("for makes changes last before they count, but not on a new node", func(t *testing.T) {
		const adding, removing = 2 * time.Second, 3 * time.Second
		w.rule(t, "lasting", "lasting", lasting(adding, removing))
		w.node(t, "lasting", "lasting")
		w.tainted(t, "lasting", "r.example.com/lasting=pending:NoSchedule")
		since := time.Now()
		w.condition(t, "lasting", network, "True")
		w.tainted(t, "lasting")
		if took := time.Since(since); took < removing {
			t.Errorf("removed after %s", took)
		}
		since = time.Now()
		w.condition(t, "lasting", network, "False")
		w.tainted(t, "lasting", "r.example.com/lasting=pending:NoSchedule")
		if took := time.Since(since); took < adding {
			t.Errorf("added after %s", took)
		}
	})

	t.Run("maxAge holds a node whose reporter fell silent", func(t *testing.T) {
		const age = 3 * time.Second
		w.node(t, "ageing", "ageing")
		w.condition(t, "ageing", network, "True")
		w.rule(t, "ageing", "ageing", maxAge(age))
		clock := time.Now().Add(-24 * time.Hour) // a clock of another machine
		since := time.Now()
		w.beat(t, "ageing", network, clock)
		w.tainted(t, "ageing", "r.example.com/ageing=pending:NoSchedule")
		if took := time.Since(since); took < age {
			t.Errorf("held %s after the last heartbeat", took)
		}
		w.beat(t, "ageing", network, clock.Add(time.Hour))
		w.tainted(t, "ageing")
	})

	t.Run("maxAge does not hold a node whose reporter is a living agent", func(t *testing.T) {
		alive := &agent{w: w, node: w.node(t, "agents-own", "agents"), boot: "test", lease: 1, id: "test", more: []string{network}}
		alive.begin(t)
		w.node(t, "agents-other", "agents")
		for _, name := range []string{"agents-own", "agents-other"} {
			w.condition(t, name, network, "True")
		}
		w.rule(t, "agents", "agents", maxAge(3*time.Second))
		w.tainted(t, "agents-other", "r.example.com/agents=pending:NoSchedule")
		w.editRule(t, "agents", func(r *rule) { r.Spec.Taint.Value = "late" }) // has the controller look at both once more
		w.tainted(t, "agents-other", "r.example.com/agents=late:NoSchedule")
		w.settled(t, "agents")
		w.tainted(t, "agents-own")
	})

	t.Run("heartbeats alone make the controller write nothing", func(t *testing.T) {
		w.node(t, "beating", "beating")
		w.condition(t, "beating", network, "True")
		w.rule(t, "beating", "beating", maxAge(time.Hour))
		w.settled(t, "beating")
		mark := w.quiet(t)
		for i := range 20 {
			w.beat(t, "beating", network, time.Now().Add(time.Duration(i)*time.Second))
		}
		w.condition(t, "beating", "example.com/Other", "True") // no rule asks for it
		w.quiet(t)
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		if mine := writesOf(requests).Where(func(r controlplane.Request) bool { return r.Name == "beating" }); len(mine) > 0 {
			t.Errorf("writes:\n%s", mine)
		}
	})

	t.Run("maxTainted spares nodes, but new ones", func(t *testing.T) {
		held := "r.example.com/bounded=pending:NoSchedule"
		names := []string{"bounded-1", "bounded-2", "bounded-3", "bounded-4", "bounded-5"}
		for _, name := range names {
			w.node(t, name, "bounded")
			w.condition(t, name, network, "True")
		}
		w.rule(t, "bounded", "bounded", maxTainted("20%"))
		for _, name := range names {
			w.eventually(t, "node "+name+" is known to the rule", func() (bool, string) {
				judged := w.getNode(t, name).Annotations[taints.JudgedAnnotation]
				return judged != "", judged
			})
		}
		w.condition(t, "bounded-3", network, "False")
		w.tainted(t, "bounded-3", held)
		for _, name := range []string{"bounded-1", "bounded-2", "bounded-4"} {
			w.condition(t, name, network, "False")
		}
		w.quiet(t)
		for _, name := range []string{"bounded-1", "bounded-2", "bounded-4"} {
			w.tainted(t, name)
		}
		w.node(t, "bounded-6", "bounded")
		w.tainted(t, "bounded-6", held) // and of six nodes two may be held: there is no room for another
		w.quiet(t)
		w.tainted(t, "bounded-1")
		w.condition(t, "bounded-3", network, "True")
		w.tainted(t, "bounded-3")
		w.tainted(t, "bounded-1", held)
		w.quiet(t)
		w.tainted(t, "bounded-2")
		w.editRule(t, "bounded", maxTainted("100%"))
		w.tainted(t, "bounded-2", held)
		w.tainted(t, "bounded-4", held)
	})

	t.Run("a rebooted node passes its bootstrap again", func(t *testing.T) {
		w.node(t, "rebooted", "rebooted")
		w.booted(t, "rebooted", "boot-1")
		w.condition(t, "rebooted", network, "True")
		w.beat(t, "rebooted", network, time.Now())
		r := w.rule(t, "rebooted", "rebooted", bootstrapOnly, func(r *rule) { r.Spec.RegateOnReboot = true })
		key := readinessv1alpha1.BootstrapMarkerPrefix + string(r.UID)
		marked := func(boot string) {
			t.Helper()
			w.eventually(t, "the node is marked in "+boot, func() (bool, string) {
				marker := w.getNode(t, "rebooted").Annotations[key]
				return marker == `{"rule-name":"rebooted","boot-id":"`+boot+`"}`, marker
			})
		}
		marked("boot-1")
		w.condition(t, "rebooted", network, "False")
		w.quiet(t)
		w.tainted(t, "rebooted")
		w.condition(t, "rebooted", network, "True")
		w.booted(t, "rebooted", "boot-2") // and what the condition says is of before
		w.tainted(t, "rebooted", "r.example.com/rebooted=pending:NoSchedule")
		if _, there := w.getNode(t, "rebooted").Annotations[key]; there {
			t.Error("the node is held, and marked")
		}
		w.beat(t, "rebooted", network, time.Now().Add(time.Minute))
		marked("boot-2")
		w.tainted(t, "rebooted")
	})

	t.Run("a marker that ends in the rule's name counts, and moves", func(t *testing.T) {
		n := w.node(t, "marked", "marked")
		old := readinessv1alpha1.BootstrapMarkerPrefix + "marked"
		w.patch(t, n, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, old))
		r := w.rule(t, "marked", "marked", bootstrapOnly)
		w.eventually(t, "the marker has moved", func() (bool, string) {
			n := w.getNode(t, "marked")
			_, there := n.Annotations[old]
			return !there && n.Annotations[readinessv1alpha1.BootstrapMarkerPrefix+string(r.UID)] == `{"rule-name":"marked"}`, fmt.Sprint(n.Annotations)
		})
		w.tainted(t, "marked")
	})

	t.Run("what came while no controller ran is new, and what was there is not", func(t *testing.T) {
		const held = "r.example.com/away=pending:NoSchedule"
		w.node(t, "away-known", "away")
		w.condition(t, "away-known", network, "True")
		w.node(t, "away-held", "away")
		w.rule(t, "away", "away", lasting(time.Hour, time.Hour))
		w.tainted(t, "away-held", held)
		w.eventually(t, "the node is known to the rule", func() (bool, string) {
			judged := w.getNode(t, "away-known").Annotations[taints.JudgedAnnotation]
			return judged != "", judged
		})
		stop()
		w.condition(t, "away-known", network, "False")
		w.condition(t, "away-held", network, "True")
		w.node(t, "away-new", "away")
		w.run(t, testOptions(t))
		w.tainted(t, "away-new", held)
		w.quiet(t)
		w.tainted(t, "away-known")
		w.tainted(t, "away-held", held)
	})
}
