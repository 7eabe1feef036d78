package daemonset

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

func reboot(t *testing.T, w *world) {
	before, node, h := w.agent(t), w.node(t), w.record(t)
	boot, err := w.vm.Reboot(t.Context())
	must(t, err)
	must(t, w.vm.AwaitNodeReady(t.Context()))
	w.await(t, "the new agent", stack.All(w.spokenFor(before.ID, node), w.well()))
	after := w.agent(t)
	if after.BootID != boot || before.BootID == boot {
		t.Errorf("boot was %s and is %s; the host tells of %s", before.BootID, boot, after.BootID)
	}
	spokeTooEarly(t, node, before.ID, h.read(t, w))
	lookedFirst(t, w)
	w.await(t, "both replicas of the controller", w.controllerRuns)
	w.memory(t)
}

// spokeTooEarly fails the test when a condition became True, or was said again to be, before a new agent held the lease.
// What was said before the reboot stands until the new agent or, for want of one, the controller says otherwise; how long
// it did is logged.
func spokeTooEarly(t *testing.T, before *corev1.Node, oldAgent string, versions []version) {
	t.Helper()
	var rebooted, reported, taken time.Time // the kubelet told of the new boot; the host of a new agent; that one held the lease
	ready := false                          // between the first two of them
	was := before
	for _, v := range versions {
		if v.lease != nil && *v.lease.Spec.HolderIdentity != oldAgent && taken.IsZero() {
			taken = v.at
		}
		if v.host != nil && v.host.Status.Agent != nil && v.host.Status.Agent.ID != oldAgent && reported.IsZero() {
			reported = v.at
		}
		if v.node == nil {
			continue
		}
		if v.node.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID && rebooted.IsZero() {
			rebooted = v.at
		}
		for _, name := range conditionTypes {
			c := stack.FindCondition(v.node, name)
			switch {
			case c == nil:
				t.Fatalf("at %s the node said nothing of %s", v.at.Format(time.TimeOnly), name)
			case same(c, stack.FindCondition(before, name)): // it stands, or was found to be so again, which is no write
			case c.Status == corev1.ConditionTrue && taken.IsZero():
				t.Errorf("at %s the node said %+v although no new agent held the lease", v.at.Format(time.TimeOnly), *c)
			}
			if !same(c, stack.FindCondition(was, name)) {
				t.Logf("%s %s: %s %s", v.at.Format(time.TimeOnly), name, c.Status, c.Reason)
			}
		}
		ready = ready || reported.IsZero() && !rebooted.IsZero() && stack.FindCondition(v.node, "Ready").Status == corev1.ConditionTrue
		was = v.node
	}
	if taken.IsZero() || rebooted.IsZero() || reported.IsZero() {
		t.Fatalf("the history lacks the new boot (%s), the report of the new agent (%s) or its lease (%s)", rebooted, reported, taken)
	}
	t.Logf("after the kubelet told of the new boot the old agent's word stood for %s (the node was Ready meanwhile: %t), the new agent took the lease after %s",
		max(0, reported.Sub(rebooted)).Round(time.Second), ready, taken.Sub(rebooted).Round(time.Second))
}

// same reports whether a condition has not been written since.
func same(a, b *corev1.NodeCondition) bool {
	return a.Status == b.Status && a.LastHeartbeatTime.Equal(&b.LastHeartbeatTime)
}

// lookedFirst fails the test when what the node says now was written before the running agent had looked, or by another.
// All times are the machine's own.
func lookedFirst(t *testing.T, w *world) {
	t.Helper()
	node, agent := w.node(t), w.agent(t)
	looked, all := map[string]bool{}, time.Time{}
	decided := map[string]time.Time{} // by condition: when the last of its checks came to its first verdict
	for _, r := range w.agentLog(t) {
		if r.Msg == "check changed" && !looked[r.Check] {
			looked[r.Check] = true
			decided[r.Condition], all = later(decided[r.Condition], r.Time), later(all, r.Time)
		}
	}
	decided[fettlev1alpha1.ConditionHealthy] = all
	for _, kind := range catalogue.Kinds() {
		if !kind.Template && !looked[kind.Name] {
			t.Errorf("the agent's log tells of no look by %s", kind.Name)
		}
	}
	for _, name := range conditionTypes {
		written := stack.FindCondition(node, name).LastHeartbeatTime
		// What was found to be so again is not written again.
		if !written.Before(&agent.StartedAt) && written.Time.Before(decided[name].Truncate(time.Second)) {
			t.Errorf("%s was written at %s, before its checks had their first verdicts, at %s", name, written, decided[name])
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// deletedNode : the kubelet makes a new Node of the old name. When it is back before the pods of the old one are
// collected, which takes 40 to 60 s, the same agent's process goes on with the new Node; else it is another.
func deletedNode(t *testing.T, w *world, podsCollected bool) {
	old, before := w.node(t), w.agent(t)
	oldPod := w.agentPod(t)
	w.guest(t, "systemctl", "stop", "kubelet")
	w.kubectl(t, "delete", "node", nodeName)
	if podsCollected {
		w.await(t, "the old host to go", func(ctx context.Context) error {
			if _, err := w.GetHost(ctx, nodeName); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is still there (error %w)", err)
			}
			return nil
		})
		w.await(t, "the old pods to go", func(ctx context.Context) error {
			pods, err := w.pods(ctx, "nodeagent")
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("pod %s is still there", pods[0].Name)
			}
			return err
		})
	}
	w.guest(t, "systemctl", "start", "kubelet")
	w.await(t, "the node to be registered", func(ctx context.Context) error {
		_, err := w.GetNode(ctx, nodeName)
		return err
	})
	node := w.node(t)
	if node.UID == old.UID {
		t.Fatal("the node was not deleted")
	}
	must(t, stack.All(w.Tainted(nodeName, networkTaint, true), w.Tainted(nodeName, storageTaint, true))(t.Context()))
	w.makeWorker(t)
	must(t, w.vm.AwaitNodeReady(t.Context()))
	notBefore := "" // the same process may go on
	if podsCollected {
		notBefore = before.ID
	}
	w.await(t, "the agent to report on the new node", stack.All(w.spokenFor(notBefore, node), w.well()))
	w.await(t, "both replicas of the controller", w.controllerRuns)
	pod := w.agentPod(t)
	t.Logf("the same pod: %t, restarts %d; the same process: %t", pod.UID == oldPod.UID, pod.Status.ContainerStatuses[0].RestartCount, w.agent(t).ID == before.ID)
}
