package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/test/controlplane"
)

const (
	// grace in these tests; leases last a second, and agents beat twice in it.
	grace        = 3 * time.Second
	startupGrace = 4 * time.Second
	beatPause    = 400 * time.Millisecond
)

func livenessOptions(t testing.TB) Options {
	o := testOptions(t)
	o.HostLifecycleGracePeriod, o.HostStartupGracePeriod = grace, startupGrace
	// Few agents make a fleet here, and a busy machine a blind controller now and then.
	o.Fleet = fleet.Limits{Window: grace, MaxSilences: 100, MaxSilencesPercent: 100, SuspendAbovePercent: 100, Cooldown: time.Second}
	return o
}

// agent does what an agent does towards the API server: it says what it knows when it begins, and renews its lease. It
// does not repeat itself when it finds its Host Unknown: the tests are about a controller that does not make it.
type agent struct {
	w    *world
	node *corev1.Node

	// lenient beats may fail.
	lenient bool
	// lease is how long the lease lasts, in seconds.
	lease int32
	// id is the holder of the lease.
	id string
	// more condition types of its own, with any prefix.
	more []string

	mu     sync.Mutex
	boot   string
	serial int
	stop   context.CancelFunc
	done   chan struct{}
}

func (w *world) agent(t *testing.T, node *corev1.Node) *agent {
	a := &agent{w: w, node: node, boot: "test", lease: 1, id: "test"}
	a.begin(t)
	return a
}

func (a *agent) begin(t *testing.T) {
	t.Helper()
	a.w.host(t, a.node)
	a.say(t)
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan struct{})
	go func() {
		defer close(a.done)
		tick := time.NewTicker(beatPause)
		defer tick.Stop()
		for {
			if err := a.beat(ctx); err != nil && ctx.Err() == nil && !a.lenient {
				t.Errorf("beat: %v", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(a.end)
}

// end kills the agent: it says nothing any more.
func (a *agent) end() {
	a.stop()
	<-a.done
}

func (a *agent) beat(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	// A clock that runs backwards is as good as any.
	renewed := metav1.NewMicroTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(a.serial) * time.Second))
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: fettlev1alpha1.LeaseNamespace, Name: a.node.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(a.id), LeaseDurationSeconds: new(a.lease), RenewTime: &renewed},
	}
	return a.w.apply(ctx, lease, "")
}

// say applies what the agent knows, Node first.
func (a *agent) say(t *testing.T) {
	t.Helper()
	now := metav1.Now().Rfc3339Copy()
	node := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": a.node.Name},
		"status": map[string]any{"conditions": []corev1.NodeCondition{{Type: fettlev1alpha1.ConditionHealthy, Status: "True", Reason: "OK", Message: "test", LastHeartbeatTime: now, LastTransitionTime: now}}}}
	host := map[string]any{"apiVersion": "fettle.dev/v1alpha1", "kind": "Host", "metadata": map[string]any{"name": a.node.Name},
		"status": fettlev1alpha1.HostStatus{
			Conditions:     []metav1.Condition{{Type: fettlev1alpha1.HostReady, Status: "True", Reason: fettlev1alpha1.ReasonHeartbeatReceived, Message: "test", LastTransitionTime: now}},
			Agent:          &fettlev1alpha1.HostAgent{Version: "test", ID: a.id, Mode: "Service", BootID: a.boot, StartedAt: now},
			ConditionTypes: append([]string{fettlev1alpha1.ConditionHealthy, fettlev1alpha1.ConditionNetworkReady}, a.more...),
		}}
	for _, err := range []error{
		a.w.applyAny(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node.Name}}, node, "status"),
		a.w.applyAny(t.Context(), &fettlev1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: a.node.Name}}, host, "status"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) apply(ctx context.Context, obj client.Object, subresource string) error {
	return w.applyAny(ctx, obj.DeepCopyObject().(client.Object), obj, subresource)
}

// applyAny applies content server-side to the object, as an agent does.
func (w *world) applyAny(ctx context.Context, obj client.Object, content any, subresource string) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.ApplyPatchType, encoded)
	if subresource != "" {
		return w.SubResource(subresource).Patch(ctx, obj, patch, client.FieldOwner("fettle-nodeagent"), client.ForceOwnership)
	}
	return w.Patch(ctx, obj, patch, client.FieldOwner("fettle-nodeagent"), client.ForceOwnership)
}

// host waits for the Host of a node.
func (w *world) host(t *testing.T, node *corev1.Node) *fettlev1alpha1.Host {
	t.Helper()
	host := &fettlev1alpha1.Host{}
	w.eventually(t, "host of node "+node.Name, func() (bool, string) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(node), host)
		return err == nil && host.Spec.NodeUID == node.UID, fmt.Sprint(err, host.Spec.NodeUID)
	})
	return host
}

// saysUnknown waits until Node and Host say that the agent is silent.
func (w *world) saysUnknown(t *testing.T, node *corev1.Node) {
	t.Helper()
	w.hostReady(t, node, "Unknown", fettlev1alpha1.ReasonHostStatusUnknown)
	if c := conditionOf(w.getNode(t, node.Name), fettlev1alpha1.ConditionHealthy); c == nil || c.Status != "Unknown" || c.Reason != fettlev1alpha1.ReasonAgentSilent {
		t.Fatalf("the Host is Unknown before the Node: %v", c)
	}
}

func (w *world) hostReady(t *testing.T, node *corev1.Node, status metav1.ConditionStatus, reason string) {
	t.Helper()
	w.eventually(t, fmt.Sprintf("host %s says Ready=%s %s", node.Name, status, reason), func() (bool, string) {
		c := apimeta.FindStatusCondition(w.host(t, node).Status.Conditions, fettlev1alpha1.HostReady)
		return c != nil && c.Status == status && c.Reason == reason, fmt.Sprint(c)
	})
}

func conditionOf(n *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// writesDuring gives what the controller writes while nothing should happen.
func (w *world) writesDuring(t *testing.T, d time.Duration) controlplane.Requests {
	t.Helper()
	mark := w.quiet(t)
	time.Sleep(d)
	requests, err := w.RequestsSince(mark)
	if err != nil {
		t.Fatal(err)
	}
	return writesOf(requests)
}

// TestAgents runs one controller over agents that live, fall silent and come back.
func TestAgents(t *testing.T) {
	w := newWorld(t)
	outer := t // a controller that a part starts runs on in the parts after it
	stop := w.run(t, livenessOptions(t))

	silentNode := w.node(t, "silent", "agents")
	silent := w.agent(t, silentNode)
	w.rule(t, "healthy", "agents", func(r *rule) { r.Spec.Conditions[0].Type = fettlev1alpha1.ConditionHealthy })

	t.Run("nothing is written while an agent beats, whatever its clock says", func(t *testing.T) {
		if writes := w.writesDuring(t, 3*grace); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		w.hostReady(t, silentNode, "True", fettlev1alpha1.ReasonHeartbeatReceived)
		w.tainted(t, "silent")
	})
	t.Run("a silent agent becomes Unknown on Node and Host, and its node is held", func(t *testing.T) {
		silent.end()
		w.saysUnknown(t, silentNode)
		w.tainted(t, "silent", "r.example.com/healthy=pending:NoSchedule")
		w.event(t, "silent", fettlev1alpha1.ReasonAgentSilent, "SetConditionsUnknown", "lease")
		n := w.getNode(t, "silent")
		if c := conditionOf(n, corev1.NodeReady); c == nil || c.Reason == fettlev1alpha1.ReasonAgentSilent {
			t.Errorf("the kubelet's condition was changed: %v", c)
		}
		if c := conditionOf(n, fettlev1alpha1.ConditionNetworkReady); c != nil {
			t.Errorf("a condition that the node did not have was made: %v", c)
		}
		if writes := w.writesDuring(t, 2*grace); len(writes) > 0 {
			t.Errorf("Unknown is written more than once:\n%s", writes)
		}
	})
	t.Run("what stands stays through a restart of the controller, and nothing is written again", func(t *testing.T) {
		stop()
		mark, err := w.Mark()
		if err != nil {
			t.Fatal(err)
		}
		stop = w.run(outer, livenessOptions(outer))
		w.quiet(t)
		time.Sleep(2 * grace)
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		if writes := writesOf(requests); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		w.saysUnknown(t, silentNode)
	})
	t.Run("an agent that is back says so itself, and the controller is quiet but for the taint", func(t *testing.T) {
		silent.begin(outer)
		w.tainted(t, "silent")
		w.event(t, "silent", "AgentBack", "HearAgent", "renews its lease again")
		if writes := w.writesDuring(t, 2*grace); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		w.hostReady(t, silentNode, "True", fettlev1alpha1.ReasonHeartbeatReceived)
		managed := w.getNode(t, "silent").ManagedFields
		for _, m := range managed {
			if m.Manager == "fettle-controller" && m.Subresource == "status" {
				t.Errorf("the controller still owns conditions: %s", m.FieldsV1)
			}
		}
	})
	t.Run("a living agent whose node says AgentSilent is asked to report again", func(t *testing.T) {
		w.patch(t, silentNode, `{"status":{"conditions":[{"type":"fettle.dev/Healthy","status":"Unknown","reason":"AgentSilent"}]}}`, "status")
		w.hostReady(t, silentNode, "Unknown", fettlev1alpha1.ReasonHostStatusUnknown)
		silent.say(t)
		w.tainted(t, "silent")
		w.hostReady(t, silentNode, "True", fettlev1alpha1.ReasonHeartbeatReceived)
	})
	t.Run("a host without an agent says so, and its node is left alone", func(t *testing.T) {
		bare := w.node(t, "bare", "bare")
		mark, err := w.Mark()
		if err != nil {
			t.Fatal(err)
		}
		w.hostReady(t, bare, "Unknown", fettlev1alpha1.ReasonHostNeverReported)
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		toNode := func(r controlplane.Request) bool { return r.Resource == "nodes" && r.Name == "bare" }
		if writes := writesOf(requests).Where(toNode); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		late := w.agent(outer, bare)
		w.hostReady(t, bare, "True", fettlev1alpha1.ReasonHeartbeatReceived)
		late.end()
		w.saysUnknown(t, bare)
	})
	t.Run("what an agent said before a boot is Unknown, though its lease still counts", func(t *testing.T) {
		n := w.node(t, "rebooting", "agents")
		w.boot(t, n, "boot-1")
		a := &agent{w: w, node: n, boot: "boot-1", lease: 1, id: "test"}
		a.begin(outer)
		w.hostReady(t, n, "True", fettlev1alpha1.ReasonHeartbeatReceived)
		w.tainted(t, "rebooting")
		if writes := w.writesDuring(t, grace); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		w.boot(t, n, "boot-2") // the lease is renewed on: silence is not what is noticed
		w.saysUnknown(t, n)
		w.tainted(t, "rebooting", "r.example.com/healthy=pending:NoSchedule")
		w.event(t, "rebooting", "AgentBehindBoot", "SetConditionsUnknown", "has booted")

		a.boot = "boot-2"
		a.say(t)
		w.tainted(t, "rebooting")
		w.event(t, "rebooting", "AgentBack", "HearAgent", "renews its lease again")
		if writes := w.writesDuring(t, 2*grace); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		w.hostReady(t, n, "True", fettlev1alpha1.ReasonHeartbeatReceived)

		versions := w.versions(t, "rebooting")
		a.boot = "boot-3" // the agent is quicker than the kubelet
		a.say(t)
		w.boot(t, n, "boot-3")
		w.boot(t, n, "") // and this is a kubelet that tells no boots
		w.quiet(t)
		w.patch(t, n, `{"metadata":{"annotations":{"test":"over"}}}`)
		for _, seen := range until(t, versions, "the end", func(n *corev1.Node) bool { return n.Annotations["test"] == "over" }) {
			if c := conditionOf(seen, fettlev1alpha1.ConditionHealthy); c == nil || c.Status != corev1.ConditionTrue {
				t.Errorf("with boot %q the node says %v", seen.Status.NodeInfo.BootID, c)
			}
		}
	})
	t.Run("a boot that no controller saw is noticed by the process that has not reported yet", func(t *testing.T) {
		n := w.node(t, "unseen", "agents")
		w.boot(t, n, "boot-1")
		a := &agent{w: w, node: n, boot: "boot-1", lease: 1, id: "first"}
		a.begin(outer)
		ahead := &agent{w: w, node: w.node(t, "ahead", "agents"), boot: "boot-1", lease: 1, id: "first"}
		w.boot(t, ahead.node, "boot-1")
		ahead.begin(outer)
		w.tainted(t, "unseen")
		w.tainted(t, "ahead")
		stop()
		w.boot(t, n, "boot-2")
		a.mu.Lock()
		a.id = "second" // it renews the lease, so that silence is not what is noticed
		a.mu.Unlock()
		ahead.boot = "boot-2"
		ahead.say(t)
		mark, err := w.Mark()
		if err != nil {
			t.Fatal(err)
		}
		stop = w.run(outer, livenessOptions(outer))
		w.saysUnknown(t, n)
		w.event(t, "unseen", "AgentBehindBoot", "SetConditionsUnknown", "has booted")
		a.boot = "boot-2"
		a.say(t)
		w.tainted(t, "unseen")
		w.quiet(t)
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		toAhead := func(r controlplane.Request) bool { return r.Name == "ahead" }
		if writes := writesOf(requests).Where(toAhead); len(writes) > 0 {
			t.Errorf("an agent that is ahead of its kubelet was not believed:\n%s", writes)
		}
	})
	t.Run("what an agent said that died before its Host heard of it becomes Unknown", func(t *testing.T) {
		n := w.node(t, "unheard", "agents")
		w.host(t, n)
		w.patch(t, n, `{"status":{"conditions":[{"type":"fettle.dev/Healthy","status":"True","reason":"OK"}]}}`, "status")
		w.hostReady(t, n, "Unknown", fettlev1alpha1.ReasonHostNeverReported)
		w.saysUnknownCondition(t, "unheard", fettlev1alpha1.ConditionHealthy)
		w.tainted(t, "unheard", "r.example.com/healthy=pending:NoSchedule")
	})
}

// saysUnknownCondition waits until a condition of a node is that of a silent agent.
func (w *world) saysUnknownCondition(t *testing.T, node, condition string) {
	t.Helper()
	w.eventually(t, "the node to say that its agent is silent", func() (bool, string) {
		c := conditionOf(w.getNode(t, node), corev1.NodeConditionType(condition))
		return c != nil && c.Status == corev1.ConditionUnknown && c.Reason == fettlev1alpha1.ReasonAgentSilent, fmt.Sprint(c)
	})
}

// boot tells of a boot as the node's kubelet does.
func (w *world) boot(t *testing.T, n *corev1.Node, id string) {
	w.patch(t, n, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, id), "status")
}

// TestHosts looks at the making of Hosts.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	w.run(t, testOptions(t))
	node := w.node(t, "a", "hosts")
	host := w.host(t, node)
	if len(host.OwnerReferences) != 1 || host.OwnerReferences[0].UID != node.UID || host.OwnerReferences[0].Kind != "Node" {
		t.Errorf("owners: %+v", host.OwnerReferences)
	}
	t.Run("a recreated node gets a new host", func(t *testing.T) {
		if err := w.Delete(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node = w.node(t, "a", "hosts")
		if again := w.host(t, node); again.UID == host.UID {
			t.Error("the same host")
		}
	})
	t.Run("a deleted host is made again", func(t *testing.T) {
		host := w.host(t, node)
		if err := w.Delete(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		w.eventually(t, "another host", func() (bool, string) {
			return w.host(t, node).UID != host.UID, "the same"
		})
	})
	t.Run("a host goes with its node", func(t *testing.T) {
		if err := w.Delete(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(2 * time.Minute) // the garbage collector has to learn of the kind first
		for {
			err := w.Get(t.Context(), client.ObjectKeyFromObject(node), &fettlev1alpha1.Host{})
			if apierrors.IsNotFound(err) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the host is still there: %v", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}
