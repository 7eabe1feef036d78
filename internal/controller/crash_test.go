package controller

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/process"
)

// build makes the real program.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/controller")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// start runs the real program as the controller's ServiceAccount.
func (w *world) start(t *testing.T, program string, args ...string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Spec{
		Command: append([]string{program, "--kubeconfig=" + w.asController, "--health-probe-bind-address=0"}, args...),
		Log:     filepath.Join(t.TempDir(), "controller.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// TestKilledAtAnyMoment kills the controller again and again while conditions change, then lets it catch up: every taint
// is as the last conditions want it, foreign taints are untouched, and then nothing is written.
func TestKilledAtAnyMoment(t *testing.T) {
	const nodes, kills = 20, 12
	w := newWorld(t)
	program := build(t)
	foreign := corev1.Taint{Key: "foreign.example.com/a", Value: "x", Effect: "NoSchedule"}
	for i := range nodes {
		w.node(t, fmt.Sprintf("n%02d", i), "crash", foreign)
	}
	w.rule(t, "one", "crash")
	w.rule(t, "two", "crash", func(r *rule) {
		r.Spec.Conditions[0].Type = "example.com/Storage"
		r.Spec.Taint.Effect, r.Spec.AllowEviction = "NoExecute", true
	})
	once := w.rule(t, "once", "crash", bootstrapOnly, func(r *rule) { r.Spec.Conditions[0].Type = "example.com/Boot" })

	want := map[string][]string{}
	passed := map[string]bool{}
	for range kills {
		controller := w.start(t, program)
		// Somewhere between its start and having caught up with what changes meanwhile.
		end := time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
		for alive := true; alive; {
			name := fmt.Sprintf("n%02d", rand.IntN(nodes))
			statuses := [3]corev1.ConditionStatus{}
			for i, conditionType := range []string{network, "example.com/Storage"} {
				statuses[i] = corev1.ConditionFalse
				if rand.IntN(2) == 0 {
					statuses[i] = corev1.ConditionTrue
				}
				w.condition(t, name, conditionType, statuses[i])
			}
			if rand.IntN(3) == 0 {
				w.condition(t, name, "example.com/Boot", "True")
				passed[name] = true
			}
			want[name] = []string{"foreign.example.com/a=x:NoSchedule"}
			if statuses[0] != corev1.ConditionTrue {
				want[name] = append(want[name], "r.example.com/one=pending:NoSchedule")
			}
			if statuses[1] != corev1.ConditionTrue {
				want[name] = append(want[name], "r.example.com/two=pending:NoExecute")
			}
			select {
			case <-end:
				alive = false
			default:
			}
		}
		controller.Kill()
	}

	controller := w.start(t, program, "--leader-elect")
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		expected := want[name]
		if expected == nil { // never changed: it has no conditions
			expected = []string{"foreign.example.com/a=x:NoSchedule", "r.example.com/one=pending:NoSchedule", "r.example.com/two=pending:NoExecute"}
		}
		if !passed[name] {
			expected = append(expected, "r.example.com/once=pending:NoSchedule")
		}
		w.tainted(t, name, expected...)
		n := w.getNode(t, name)
		_, marked := n.Annotations["readiness.k8s.io/bootstrap-completed-"+string(once.UID)]
		if marked != passed[name] {
			t.Errorf("node %s: marked %v, passed %v", name, marked, passed[name])
		}
		if owned := len(expected) - 1; len(taints.ReadRecord(n)) != owned {
			t.Errorf("node %s: record %s, taints %v", name, n.Annotations[taints.RecordAnnotation], expected)
		}
	}

	mark := w.quiet(t)
	time.Sleep(10 * time.Second) // what is asserted is that nothing happens
	requests, err := w.RequestsSince(mark)
	if err != nil {
		t.Fatal(err)
	}
	mine := requests.By(controllerUser).Where(func(r controlplane.Request) bool { return r.Verb != "watch" })
	for what, count := range mine.Counts() {
		if what != "update leases" && what != "get leases" || count > 8 {
			t.Errorf("quiet, and yet: %d × %s", count, what)
		}
	}
	t.Logf("requests of 10 quiet seconds with %d nodes and 3 rules:\n%s", nodes, mine)

	t.Run("a restart writes nothing but the leader lease", func(t *testing.T) {
		controller.Stop(10 * time.Second)
		if code := controller.ExitCode(); code != 0 {
			t.Errorf("exit status %d after SIGTERM\n%s", code, controller.LogTail())
		}
		var lease coordinationv1.Lease
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: LeaderLease}, &lease); err != nil {
			t.Fatal(err)
		}
		if holder := *lease.Spec.HolderIdentity; holder != "" {
			t.Errorf("the lease is still held by %s", holder)
		}
		mark, err := w.Mark()
		if err != nil {
			t.Fatal(err)
		}
		w.start(t, program, "--leader-elect")
		w.eventually(t, "the new one leads", func() (bool, string) {
			err := w.Get(t.Context(), client.ObjectKeyFromObject(&lease), &lease)
			return err == nil && *lease.Spec.HolderIdentity != "", fmt.Sprint(err)
		})
		w.quiet(t)
		requests, err := w.RequestsSince(mark)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range writesOf(requests) {
			if r.Resource != "events" || r.Namespace != Namespace { // that says who leads
				t.Errorf("written: %s %s", r.What(), r.Name)
			}
		}
	})
}
