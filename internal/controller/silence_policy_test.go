package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/test/await"
)

// fleetOptions are those of a controller with few agents, whose leases last half the grace period as in production.
func fleetOptions(t testing.TB) Options {
	o := testOptions(t)
	o.HostLifecycleGracePeriod, o.HostStartupGracePeriod = 10*time.Second, 20*time.Second
	o.Fleet.Cooldown = 2 * time.Second
	return o
}

// agents makes nodes with an agent each, that have reported.
func (w *world) agents(t *testing.T, prefix string, n int, changes ...func(*agent)) []*agent {
	t.Helper()
	var out []*agent
	for i := range n {
		a := &agent{w: w, node: w.node(t, fmt.Sprintf("%s-%02d", prefix, i), prefix), boot: "test", lease: 6, id: "test"}
		for _, change := range changes {
			change(a)
		}
		a.begin(t)
		out = append(out, a)
	}
	return out
}

func lenient(a *agent) { a.lenient = true }

// policy gives the FleetPolicy; empty when there is none.
func (w *world) policy(t testing.TB) *fettlev1alpha1.FleetPolicy {
	t.Helper()
	policy := &fettlev1alpha1.FleetPolicy{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: fettlev1alpha1.FleetPolicyName}, policy); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return policy
}

// makePolicy makes a FleetPolicy with a cooldown that a test can wait for.
func (w *world) makePolicy(t testing.TB) {
	t.Helper()
	if err := w.Create(t.Context(), &fettlev1alpha1.FleetPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fettlev1alpha1.FleetPolicyName},
		Spec:       fettlev1alpha1.FleetPolicySpec{Silence: &fettlev1alpha1.SilencePolicy{Cooldown: &metav1.Duration{Duration: 3 * time.Second}}},
	}); err != nil {
		t.Fatal(err)
	}
}

// fleetIs waits for what the policy's status says.
func (w *world) fleetIs(t testing.TB, verdict fleet.Verdict, reason string) {
	t.Helper()
	var last fettlev1alpha1.FleetPolicyStatus
	defer func() {
		if t.Failed() {
			t.Logf("status at last: %+v, %+v", last, last.Agents)
		}
	}()
	await.That(t, fmt.Sprintf("the fleet to be %s because of %s", verdict, reason), func() bool {
		last = w.policy(t).Status
		return last.Verdict == string(verdict) && last.Reason == reason
	})
}

// fleetEvent waits for an event about the FleetPolicy.
func (w *world) fleetEvent(t testing.TB, note silenceNote, says string) {
	t.Helper()
	await.That(t, "event "+note.reason+" that says "+says, func() bool {
		var list eventsv1.EventList
		if err := w.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "FleetPolicy" && e.Reason == note.reason && e.Action == note.action && strings.Contains(e.Note, says)
		})
	})
}

// canaryHolder gives who judges the fleet.
func (w *world) canaryHolder(t testing.TB) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: fettlev1alpha1.CanaryLease}, lease); err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

// unknown counts the nodes that say that their agent is silent.
func (w *world) unknown(t testing.TB, agents []*agent) int {
	t.Helper()
	n := 0
	for _, a := range agents {
		if c := conditionOf(w.getNode(t, a.node.Name), fettlev1alpha1.ConditionHealthy); c != nil && c.Reason == fettlev1alpha1.ReasonAgentSilent {
			n++
		}
	}
	return n
}

// TestFleet runs one controller over a fleet most of which stops.
func TestFleet(t *testing.T) {
	w := newWorld(t)
	outer := t // a controller that a part starts runs on in the parts after it
	stop := w.run(t, fleetOptions(t))
	agents := w.agents(t, "fleet", 10)
	w.rule(t, "healthy", "fleet", func(r *rule) { r.Spec.Conditions[0].Type = fettlev1alpha1.ConditionHealthy })

	t.Run("the verdict is shown once there is a policy", func(t *testing.T) {
		w.makePolicy(t)
		await.That(t, "ten agents are heard", func() bool {
			status := w.policy(t).Status
			return status.Agents != nil && status.Agents.Expected == 10 && status.Verdict == string(fleet.Normal)
		})
		policy := w.policy(t)
		for _, kind := range []string{fettlev1alpha1.FleetActsOnSilence, fettlev1alpha1.FleetOverridden} {
			want := kind == fettlev1alpha1.FleetActsOnSilence
			if c := apimeta.FindStatusCondition(policy.Status.Conditions, kind); c == nil || (c.Status == metav1.ConditionTrue) != want || c.ObservedGeneration != policy.Generation || !fleet.Reasons.Has(c.Reason) {
				t.Errorf("condition %s: %+v", kind, c)
			}
		}
	})
	dead, living := agents[:8], agents[8:]
	t.Run("nothing follows from the silence of most agents", func(t *testing.T) {
		for _, a := range dead {
			a.end()
		}
		w.fleetIs(t, fleet.Suspended, fleet.ReasonManyStale)
		w.fleetEvent(t, noteVerdict, "Suspended, before Normal")
		await.That(t, "their grace periods to be over", func() bool {
			status := w.policy(t).Status
			return status.Agents.Waiting == 8 && status.Verdict == string(fleet.Suspended)
		})
		if n := w.unknown(t, agents); n > 0 {
			t.Errorf("%d nodes say that their agent is silent", n)
		}
	})
	t.Run("what a living agent reports is acted on all the same", func(t *testing.T) {
		w.condition(t, living[0].node.Name, fettlev1alpha1.ConditionHealthy, "False")
		w.tainted(t, living[0].node.Name, "r.example.com/healthy=pending:NoSchedule")
		w.condition(t, living[0].node.Name, fettlev1alpha1.ConditionHealthy, "True")
		w.tainted(t, living[0].node.Name)
	})
	t.Run("a new leader suspends, too", func(t *testing.T) {
		before := w.canaryHolder(t)
		stop()
		w.run(outer, fleetOptions(outer))
		await.That(t, "their grace periods to be over again", func() bool {
			return w.canaryHolder(t) != before && w.policy(t).Status.Agents.Waiting == 8
		})
		w.fleetIs(t, fleet.Suspended, fleet.ReasonManyStale)
		if n := w.unknown(t, agents); n > 0 {
			t.Errorf("%d nodes say that their agent is silent", n)
		}
	})
	t.Run("an override lets the silences through, and ends by itself", func(t *testing.T) {
		policy := w.policy(t)
		policy.Spec.Silence.Override = &fettlev1alpha1.SilenceOverride{
			Verdict: string(fleet.Normal), Until: metav1.Time{Time: time.Now().Add(20 * time.Second)}, Reason: "the rack burns",
		}
		if err := w.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		w.fleetEvent(t, noteOverridden, "the rack burns; without it the verdict would be Suspended")
		w.fleetEvent(t, noteVerdict, "Normal, before Suspended: by override")
		await.That(t, "all silent nodes to say so", func() bool { return w.unknown(t, agents) == 8 })
		for _, a := range dead {
			w.saysUnknown(t, a.node)
			w.tainted(t, a.node.Name, "r.example.com/healthy=pending:NoSchedule")
		}
		overridden := func(status metav1.ConditionStatus, reason string) {
			await.That(t, "the condition to say "+reason, func() bool {
				c := apimeta.FindStatusCondition(w.policy(t).Status.Conditions, fettlev1alpha1.FleetOverridden)
				return c != nil && c.Status == status && c.Reason == reason
			})
		}
		w.fleetEvent(t, noteOverEnded, "has ended")
		overridden(metav1.ConditionFalse, fleet.ReasonOverrideExpired)
		if n := w.unknown(t, agents); n != 8 {
			t.Errorf("%d nodes say that their agent is silent", n)
		}
	})
	t.Run("agents that are back are released at once, however many", func(t *testing.T) {
		for _, a := range dead {
			a.begin(outer)
		}
		for _, a := range dead {
			w.tainted(t, a.node.Name)
			w.hostReady(t, a.node, "True", fettlev1alpha1.ReasonHeartbeatReceived)
		}
		w.fleetIs(t, fleet.Normal, fleet.ReasonAgentsHeard)
	})
	t.Run("a quiet fleet costs the policy no write", func(t *testing.T) {
		if writes := w.writesDuring(t, 20*time.Second); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
	})
}

// TestLeaseNamespaceGone takes away the namespace in which all agents renew their leases.
func TestLeaseNamespaceGone(t *testing.T) {
	w := newWorld(t)
	w.run(t, fleetOptions(t))
	agents := w.agents(t, "gone", 4, lenient)
	w.makePolicy(t)
	w.fleetIs(t, fleet.Normal, fleet.ReasonAgentsHeard)
	if err := w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fettlev1alpha1.LeaseNamespace}}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the controller to be blind", func() bool { return w.policy(t).Status.Verdict == string(fleet.Blind) })
	time.Sleep(15 * time.Second) // longer than the grace period: a time in which nothing should happen
	if n := w.unknown(t, agents); n > 0 {
		t.Errorf("%d nodes say that their agent is silent", n)
	}
	status := w.policy(t).Status
	if status.Reason != fleet.ReasonLeasesMissing && status.Reason != fleet.ReasonLeasesForbidden { // its rights there went first
		t.Errorf("blind because of %s: %s", status.Reason, status.Message)
	}
	await.That(t, "the namespace to be back", func() bool {
		return w.ControlPlane.Apply(t.Context(), "../../deploy/controller/00-namespaces.yaml", "../../deploy/controller/10-rights.yaml") == nil
	})
	w.fleetIs(t, fleet.Normal, fleet.ReasonAgentsHeard)
	if n := w.unknown(t, agents); n > 0 {
		t.Errorf("%d nodes say that their agent is silent", n)
	}
}

// TestAPIServerAway takes the API server away for longer than an agent may be silent.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	o := fleetOptions(t)
	w.run(t, o)
	agents := w.agents(t, "away", 4, lenient)
	w.makePolicy(t)
	w.fleetIs(t, fleet.Normal, fleet.ReasonAgentsHeard)
	w.StopAPIServer()
	time.Sleep(2 * o.HostLifecycleGracePeriod) // the time is what is tested
	if err := w.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.fleetEvent(t, noteVerdict, "Normal, before Blind")
	time.Sleep(2 * o.HostLifecycleGracePeriod) // a time in which nothing should happen
	if n := w.unknown(t, agents); n > 0 {
		t.Errorf("%d nodes say that their agent is silent", n)
	}
	agents[0].end()
	await.That(t, "silence to be noticed again", func() bool { return w.unknown(t, agents) == 1 })
}

// TestRestartsDoNotHideADeadAgent runs controllers that none lives as long as an agent may be silent.
func TestRestartsDoNotHideADeadAgent(t *testing.T) {
	w := newWorld(t)
	o := fleetOptions(t)
	stop := w.run(t, o)
	agents := w.agents(t, "restart", 3)
	agents[0].end()
	for range 40 {
		time.Sleep(o.HostLifecycleGracePeriod / 2) // its life, not a wait
		stop()
		if w.unknown(t, agents) > 0 {
			break
		}
		stop = w.run(t, o)
	}
	if n := w.unknown(t, agents[:1]); n != 1 {
		t.Error("the dead agent was not found")
	}
	if n := w.unknown(t, agents[1:]); n != 0 {
		t.Error("a living agent was called silent")
	}
}
