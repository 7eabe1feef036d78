package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/test/e2e/stack"
)

const cniConfigPath = "/etc/cni/net.d/10-bridge.conflist"

// TestShippedProduct goes on with one machine from part to part: booting is slow.
func TestShippedProduct(t *testing.T) {
	w := startWorld(t)
	part := func(name string, test func(*testing.T, *world)) {
		if !t.Run(name, func(t *testing.T) { test(t, w) }) {
			t.FailNow() // the parts after it stand on it
		}
	}
	part("the DaemonSet's pod runs as its manifest says", runsAsManifested)
	part("it reports, and the controller's pods take the taints of bootstrap away", reportsAndIsReleased)
	must(t, w.StartController())
	part("a broken network configuration taints the machine until it is repaired", brokenNetworkConfiguration)
	part("a broken service proxy is reported and is not silence", brokenServiceProxy)
	part("the pod starts a unit on the machine", startsAUnit)
	part("a reboot: nobody speaks for the machine before the new agent has looked", reboot)
	part("kill -9 of the agent: another takes over and nothing is wrong meanwhile", killedAgent)
	part("the machine's clock jumps ahead and back: the agent stays alive and right", clockJumps)
	part("the agent is asked in its pod, and its configuration edited in its ConfigMap", askedAndConfigured)
	part("the node deleted while its kubelet is down for a moment", func(t *testing.T, w *world) { deletedNode(t, w, false) })
	part("the node deleted while its kubelet is down for longer than its pods are kept", func(t *testing.T, w *world) { deletedNode(t, w, true) })
	part("a command that takes all memory is killed", glutton)
	part("each privilege that is missing is missed as documented", privileges)
	part("its removal leaves nothing of it on the node", removal)
}

func runsAsManifested(t *testing.T, w *world) {
	ctx := t.Context()
	w.await(t, "the agent's pod to run", func(ctx context.Context) error {
		pods, err := w.pods(ctx, "nodeagent")
		if err != nil {
			return err
		}
		if len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning || !pods[0].Spec.HostNetwork {
			return fmt.Errorf("%d pods of the agent, want one that runs in the host's network", len(pods))
		}
		_, err = w.agentPID(ctx)
		return err
	})
	pid, err := w.agentPID(ctx)
	must(t, err)
	if its, hosts := w.guest(t, "readlink", "/proc/"+pid+"/ns/net"), w.guest(t, "readlink", "/proc/1/ns/net"); its != hosts {
		t.Errorf("its network namespace is %s, the host's is %s", its, hosts)
	}
	mounts := w.agentMounts(t, pid)
	for path, want := range map[string]mount{
		"/":                {readOnly: true},
		"/etc/fettle":      {readOnly: true},
		"/host":            {readOnly: true, follows: true},
		"/run/dbus":        {readOnly: true},
		"/var/lib/fettle":  {},
		"/var/lib/skyhook": {},
		"/var/log/skyhook": {},
	} {
		if got, ok := mounts[path]; !ok || got.readOnly != want.readOnly || (want.follows && !got.follows) {
			t.Errorf("mount %s is there: %t, %+v; want %+v", path, ok, got, want)
		}
	}
	if status := w.guest(t, "cat", "/proc/"+pid+"/status"); !strings.Contains(status, "\nCapEff:\t0000000000000000\n") {
		t.Errorf("it has capabilities:\n%s", status)
	}
}

func reportsAndIsReleased(t *testing.T, w *world) {
	registered := stack.All(w.Tainted(nodeName, networkTaint, true), w.Tainted(nodeName, storageTaint, true))
	must(t, registered(t.Context()))
	w.makeWorker(t)
	w.await(t, "the machine to be well", w.well())
	w.await(t, "both replicas of the controller", w.controllerRuns)

	var leader coordinationv1.Lease
	must(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fettle-controller"}, &leader))
	if holder := *leader.Spec.HolderIdentity; !strings.HasPrefix(holder, "controller-") {
		t.Errorf("the leader is %s, want one of the controller's pods", holder)
	}
	boot, err := w.vm.BootID(t.Context())
	must(t, err)
	if a := w.agent(t); a.Mode != "DaemonSet" || a.BootID != boot {
		t.Errorf("the host tells of %+v, want mode DaemonSet and boot %s", a, boot)
	}
	w.memory(t)
}

func brokenNetworkConfiguration(t *testing.T, w *world) {
	ctx := t.Context()
	good, err := w.vm.ReadFile(ctx, cniConfigPath)
	must(t, err)
	must(t, w.vm.WriteFile(ctx, cniConfigPath, []byte("{"), 0o644))
	w.await(t, "the taint", w.faulty("CNIConfigInvalid"))
	if message := stack.FindCondition(w.node(t), conditionTypes[0]).Message; !strings.Contains(message, cniConfigPath) {
		t.Errorf("the message %q does not name %s", message, cniConfigPath)
	}
	must(t, w.vm.WriteFile(ctx, cniConfigPath, good, 0o644))
	w.await(t, "the machine to be well", w.well())
	must(t, w.vm.AwaitNodeReady(ctx))
}

// brokenServiceProxy : the agent has a way to the API server that needs no service proxy, also when it has to find it
// while there is none.
func brokenServiceProxy(t *testing.T, w *world) {
	ctx := t.Context()
	broken := w.faulty("ServiceAddressUnreachable")
	beatsOn := func(t *testing.T, enough int) {
		t.Helper()
		h := w.record(t)
		w.await(t, "beats", func(context.Context) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if n := beats(h.versions); n < enough {
				return fmt.Errorf("%d beats, want %d", n, enough)
			}
			return nil
		})
		neverSilent(t, h.read(t, w))
		must(t, broken(ctx))
	}

	must(t, w.vm.BreakServiceProxy(ctx))
	w.await(t, "the taint", broken)
	beatsOn(t, 7) // 10 s each: more than the controller's grace period of 50 s

	before := w.agent(t)
	w.killAgent(t)
	w.await(t, "an agent that joined without a service proxy", stack.All(w.spokenFor(before.ID, w.node(t)), broken))
	beatsOn(t, 3)

	must(t, w.vm.RepairServiceProxy(ctx))
	w.await(t, "the machine to be well", w.well())
}

func startsAUnit(t *testing.T, w *world) {
	cursor := w.journalCursor(t)
	out := w.kubectl(t, "exec", "--namespace="+namespace, "daemonset/nodeagent", "--", "/usr/bin/nodeagent", "preflight", "--output=json")
	t.Logf("%s", out)
	var answer struct {
		Findings []struct {
			Need, Detail string
			OK           bool
		}
	}
	must(t, json.Unmarshal([]byte(out), &answer))
	seen := map[string]bool{}
	for _, f := range answer.Findings {
		seen[f.Need] = true
		if !f.OK {
			t.Errorf("%s: %s", f.Need, f.Detail)
		}
	}
	for _, need := range []string{"transient unit", "systemd over D-Bus", "write the node's conditions"} {
		if !seen[need] {
			t.Errorf("preflight does not speak of %q", need)
		}
	}
	// What only the guest's own systemd (process 1) writes.
	var journal string
	w.await(t, "the unit in the machine's journal", func(ctx context.Context) (err error) {
		journal, err = w.vm.Exec(ctx, "journalctl", "--no-pager", "--after-cursor="+cursor, "--output=cat", "--unit=fettle-preflight-*.service", "_PID=1")
		if err == nil && !strings.Contains(journal, "Finished fettle-preflight-") {
			err = fmt.Errorf("it says %q", journal)
		}
		return err
	})
	if n := strings.Count(journal, "Finished fettle-preflight-"); n != 1 {
		t.Errorf("%d units ran, want 1:\n%s", n, journal)
	}
}

func killedAgent(t *testing.T, w *world) {
	before, h := w.agent(t), w.record(t)
	w.killAgent(t)
	w.await(t, "another agent", stack.All(w.spokenFor(before.ID, w.node(t)), w.well()))
	for _, v := range h.read(t, w) {
		if v.node == nil {
			continue
		}
		for _, name := range conditionTypes {
			c := stack.FindCondition(v.node, name)
			// Unknown would be the truth, should the kubelet take long to start it again.
			if c == nil || c.Status == corev1.ConditionFalse {
				t.Errorf("at %s the node said %s %+v", v.at.Format(time.TimeOnly), name, c)
			}
		}
	}
	for _, r := range w.agentLog(t) {
		if strings.Contains(r.Msg, "another living agent") {
			t.Errorf("it took its predecessor for another: %s", r.Msg)
		}
	}
	w.memory(t)
}
