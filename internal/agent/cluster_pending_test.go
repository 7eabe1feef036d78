package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// began is when everything came to be as it is reported.
var began = time.Now()

// partly makes a report in which some types are decided, e.g. "StorageReady=False/Full", and others are not.
func partly(decided []string, pending ...string) health.Report {
	r := health.Report{Decided: len(pending) == 0, Summary: health.Summary{Verdict: health.OK, Since: began}}
	for _, d := range decided {
		name, rest, _ := strings.Cut(d, "=")
		status, reason, _ := strings.Cut(rest, "/")
		r.Conditions = append(r.Conditions, health.Condition{
			Type: fettlev1alpha1.ConditionPrefix + name, Status: health.Status(status), Reason: reason, Message: "as it was found",
		})
	}
	for _, p := range pending {
		r.Pending = append(r.Pending, fettlev1alpha1.ConditionPrefix+p)
		r.Checks = append(r.Checks, health.CheckState{Name: p, Result: health.Result{Verdict: health.Unknown, Reason: health.ReasonPending}, Since: began})
		r.Counts.Unknown++
	}
	return r
}

// keepsWhatIsPending : after a restart the node says of what is not decided yet what it said before.
func keepsWhatIsPending(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	first := startPart(t, r.agentKubeconfig, node, state)
	first.say(partly([]string{"Healthy=False/Broken", "GPUReady=True/OK", "NetworkReady=False/Broken", "StorageReady=True/OK"}))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	first.stop()
	before := r.node(t, node)

	// GPUReady was taken out of the configuration, KernelReady is new.
	start := r.mark(t)
	second := startPart(t, r.agentKubeconfig, node, state)
	second.say(partly(nil, "Healthy", "KernelReady", "NetworkReady", "StorageReady"))
	second.say(partly([]string{"StorageReady=False/Full"}, "Healthy", "KernelReady", "NetworkReady"))
	r.awaitSaid(t, node, "Healthy=False/Broken NetworkReady=False/Broken StorageReady=False/Full")
	after := r.node(t, node)
	for _, name := range []corev1.NodeConditionType{"fettle.dev/Healthy", "fettle.dev/NetworkReady"} {
		if was, is := condition(before, name), condition(after, name); was != is {
			t.Errorf("what was pending changed from\n%+v to\n%+v", was, is)
		}
	}
	if agent := r.host(t, node).Status.Agent; agent.ID != first.o.self.ID {
		t.Errorf("the host was written before all was decided, by %s", agent.ID)
	}
	second.say(partly([]string{"Healthy=False/Full", "KernelReady=True/OK", "NetworkReady=True/OK", "StorageReady=False/Full"}))
	r.awaitSaid(t, node, "Healthy=False/Full KernelReady=True/OK NetworkReady=True/OK StorageReady=False/Full")
	await.That(t, "the host names the second agent and all its types", func() bool {
		s := r.host(t, node).Status
		return s.Agent.ID == second.o.self.ID && len(s.ConditionTypes) == 4
	})
	// Some may be refused because the node's controllers wrote to it at the same time.
	stored := r.requests(t, start, second.version).Where(func(q controlplane.Request) bool { return q.Code == http.StatusOK })
	if n := stored.Counts()["patch nodes/status"]; n != 2 {
		t.Errorf("%d writes to the node for two steps", n)
	}
}

// keepsTheControllersUnknown : a type that is not decided yet is not made better than the controller left it, and the
// part of it that the controller owns does not keep it on the node once it is not reported any more.
func keepsTheControllersUnknown(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	first := startPart(t, r.agentKubeconfig, node, state)
	first.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	first.stop()
	r.fallSilent(t, node)
	silent := condition(r.node(t, node), "fettle.dev/NetworkReady")

	second := startPart(t, r.agentKubeconfig, node, state)
	second.say(partly([]string{"StorageReady=True/OK"}, "Healthy", "NetworkReady"))
	r.awaitSaid(t, node, "Healthy=Unknown/AgentSilent NetworkReady=Unknown/AgentSilent StorageReady=True/OK")
	if now := condition(r.node(t, node), "fettle.dev/NetworkReady"); now != silent {
		t.Errorf("the controller's word changed from\n%+v to\n%+v", silent, now)
	}
	if n, err := r.agentView(t).Node(t.Context(), node); err != nil || !slices.Contains(n.Owned, "fettle.dev/NetworkReady") || !slices.Contains(n.Shared, "fettle.dev/NetworkReady") {
		t.Errorf("the copy is not owned by both: owned %v, shared %v, %v", n.Owned, n.Shared, err)
	}
	second.say(partly([]string{"Healthy=True/OK", "StorageReady=True/OK"}))
	r.awaitSaid(t, node, "Healthy=True/OK StorageReady=True/OK")
	if n, err := r.agentView(t).Node(t.Context(), node); err != nil || len(report.Leftovers(n, n.Owned)) != 0 {
		t.Errorf("something is left: %+v, %v", n, err)
	}
	if c := condition(r.node(t, node), "example.com/Foreign"); c.Status != "False" {
		t.Errorf("another reporter's condition is %+v", c)
	}
}

// withdrawsWholeAfterARestart : the controller owns parts of what an agent said before it was given another configuration.
func withdrawsWholeAfterARestart(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	first := startPart(t, r.agentKubeconfig, node, state)
	first.say(partly([]string{"Healthy=True/OK", "NetworkReady=False/Broken", "StorageReady=True/OK"}))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	first.stop()
	r.fallSilent(t, node)
	// What another version left behind that owned it no more.
	r.setCondition(t, node, "fettle.dev/GPUReady", "True")

	second := startPart(t, r.agentKubeconfig, node, state)
	second.say(partly([]string{"Healthy=True/OK", "StorageReady=True/OK"}))
	r.awaitSaid(t, node, "Healthy=True/OK StorageReady=True/OK")
	if c := condition(r.node(t, node), "example.com/Foreign"); c.Status != "False" {
		t.Errorf("another reporter's condition is %+v", c)
	}
	// And in the midst of life, with what the controller said of it in between.
	r.fallSilent(t, node)
	r.awaitSaid(t, node, "Healthy=True/OK StorageReady=True/OK")
	second.say(partly([]string{"Healthy=True/OK"}))
	r.awaitSaid(t, node, "Healthy=True/OK")
}

// doesNotOverwriteNews : what is copied is not older than what stands on the node, whoever writes at the same time.
func doesNotOverwriteNews(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)
	for i := range 10 {
		status := []string{"True", "False"}[i%2]
		p.say(partly([]string{fmt.Sprintf("StorageReady=True/Round%d", i)}, "Healthy", "NetworkReady"))
		r.setCondition(t, node, "fettle.dev/NetworkReady", status)
		await.That(t, "the round is published", func() bool {
			return condition(r.node(t, node), "fettle.dev/StorageReady").Reason == fmt.Sprintf("Round%d", i)
		})
		if got := string(condition(r.node(t, node), "fettle.dev/NetworkReady").Status); got != status {
			t.Fatalf("round %d: the copy says %s and not %s", i, got, status)
		}
	}
}

// showsWhatIsNeverDecided : a check that comes to no verdict does not keep the Host from being written for ever, and the
// agent is no longer called silent.
func showsWhatIsNeverDecided(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	state := t.TempDir()
	first := startPart(t, r.agentKubeconfig, node, state)
	first.say(finding(""))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	first.stop()
	r.fallSilent(t, node)
	second := startPart(t, r.agentKubeconfig, node, state)
	started := time.Now()
	second.say(partly([]string{"StorageReady=True/OK"}, "Healthy", "NetworkReady"))
	r.awaitSaid(t, node, "Healthy=Unknown/Pending NetworkReady=Unknown/Pending StorageReady=True/OK")
	if waited := time.Since(started); waited < 30*time.Second {
		t.Errorf("after %s", waited)
	}
	await.That(t, "the host shows it as unknown", func() bool {
		s := r.host(t, node).Status
		return hostReady(r.host(t, node)) == "True/HeartbeatReceived" && s.Health.Counts.Unknown == 2 && len(s.Health.Checks) == 2 && len(s.ConditionTypes) == 3
	})
}

// writesNoiseSeldom : a message that changes while status and reason stay is written once, and then not for a minute.
func writesNoiseSeldom(t *testing.T, r *rig, node string) {
	r.createHost(t, node, r.createNode(t, node).UID)
	p := startPart(t, r.agentKubeconfig, node, t.TempDir())
	noisy := func(i int) health.Report {
		all := partly([]string{"Healthy=False/Broken", "NetworkReady=False/Broken"})
		all.Conditions[1].Message = fmt.Sprintf("%d packets lost", i)
		all.Checks = []health.CheckState{{Name: "net", Result: health.Result{Verdict: health.Fatal, Reason: "Broken", Message: all.Conditions[1].Message}, Since: began}}
		return all
	}
	p.say(noisy(0))
	await.That(t, "the host says Ready", func() bool { return hostReady(r.host(t, node)) == "True/HeartbeatReceived" })
	first, quiet := r.mark(t), time.Now()
	for i := range 10 {
		p.say(noisy(i + 1))
		time.Sleep(1500 * time.Millisecond)
	}
	if writes := r.requests(t, first, p.version).Writes(); time.Since(quiet) < 50*time.Second && writes.Counts()["update leases"] != len(writes) {
		t.Errorf("writes for messages alone:\n%s", writes)
	}
	// A reason does not wait, and takes the latest message along.
	next := noisy(11)
	next.Conditions[1].Reason = "Lost"
	p.say(next)
	await.That(t, "the reason is published", func() bool { return condition(r.node(t, node), "fettle.dev/NetworkReady").Reason == "Lost" })
	if got := condition(r.node(t, node), "fettle.dev/NetworkReady").Message; got != "11 packets lost" {
		t.Errorf("message is %q", got)
	}
	next.Conditions = slices.Clone(next.Conditions)
	next.Conditions[1].Message = "the last word"
	said := time.Now()
	p.say(next)
	await.That(t, "the last message is published in the end", func() bool {
		return condition(r.node(t, node), "fettle.dev/NetworkReady").Message == "the last word"
	})
	if waited := time.Since(said); waited < 30*time.Second {
		t.Errorf("it was published after %s", waited)
	}
}

// setCondition is what others do.
func (r *rig) setCondition(t *testing.T, node, name, status string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(status), Reason: "Other", LastTransitionTime: metav1.Now(),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.admin.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// agentView reads as agents do.
func (r *rig) agentView(t *testing.T) *kubeclient.Client {
	t.Helper()
	return r.clientOf(t, r.Kubeconfig())
}

// clientOf is an agent's client with any credential.
func (r *rig) clientOf(t *testing.T, kubeconfig string) *kubeclient.Client {
	t.Helper()
	candidates, err := kubeclient.Source{Kubeconfig: kubeconfig}.Candidates()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubeclient.New(candidates[0].Config, kubeclient.Settings{UserAgent: "test", CallTimeout: time.Minute, CallsPerSecond: 100, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
