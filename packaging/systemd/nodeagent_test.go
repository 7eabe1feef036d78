// Package systemd_test runs the agent's unit as shipped on a real systemd machine that is joined to a real API server.
package systemd_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/machines"
	"github.com/fettle-dev/fettle/test/port"
)

const node = "machine-a"

// fixture is a machine with the agent installed, as a Node of a control plane.
type fixture struct {
	*machines.Machine
	cluster *controlplane.ControlPlane
	clients *kubernetes.Clientset
}

// join makes a control plane with Fettle's manifests in which a node and its Host exist, and gives the kubeconfig of an
// agent that speaks for it.
func (f *fixture) join(t *testing.T, node string) (kubeconfig string) {
	t.Helper()
	const deploy = "../../deploy/"
	f.cluster = controlplane.ForTest(t, controlplane.Options{})
	var err error
	if err = f.cluster.Apply(t.Context(), deploy+"crds", deploy+"daemonset/00-namespaces.yaml", deploy+"daemonset/10-rights.yaml", deploy+"daemonset/15-policies.yaml"); err != nil {
		t.Fatal(err)
	}
	if f.clients, err = kubernetes.NewForConfig(f.cluster.Config()); err != nil {
		t.Fatal(err)
	}
	created, err := f.clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(t.TempDir(), "host.yaml")
	write(t, host, "apiVersion: fettle.dev/v1alpha1\nkind: Host\nmetadata: {name: "+node+"}\nspec: {nodeUID: "+string(created.UID)+"}\n")
	if err := f.cluster.Apply(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err = f.cluster.ServiceAccountKubeconfig(t.Context(), "fettle-system", "nodeagent", created)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func install(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{}
	kubeconfig := f.join(t, node)
	f.Machine = machines.ForTest(t, machines.Options{
		Name:  node,
		Binds: []machines.Bind{{Source: built(t), Target: "/usr/bin/nodeagent"}},
		Files: []machines.File{
			{Path: "/etc/systemd/system/nodeagent.service", Text: read(t, "nodeagent.service")},
			{Path: "/etc/fettle/kubeconfig", Text: read(t, kubeconfig), Mode: 0o600},
			{Path: "/etc/fettle/nodeagent.yaml", Text: "kubeconfig: /etc/fettle/kubeconfig\nheartbeat: {interval: 1s, leaseDuration: 40s, statusTimeout: 500ms}\n", Mode: 0o600},
			// The minute of the unit as shipped is long for a test.
			{Path: "/etc/systemd/system/nodeagent.service.d/test.conf", Text: "[Service]\nWatchdogSec=4\n"},
		},
	})
	return f
}

// built is the agent's binary.
func built(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "nodeagent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/nodeagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

func TestTheUnitAsShipped(t *testing.T) {
	f := install(t)
	if out, err := f.Exec(t.Context(), "systemd-analyze", "verify", "/etc/systemd/system/nodeagent.service"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	f.exec(t, "systemctl", "start", "nodeagent.service") // returns once the agent says that it is ready

	f.await(t, "the node says what the machine is like", func(ctx context.Context) bool {
		return f.condition(ctx, "fettle.dev/StorageReady").Status == corev1.ConditionTrue
	})
	f.await(t, "the service manager is told", func(context.Context) bool {
		return strings.HasSuffix(f.show(t, "StatusText"), "; published")
	})
	if fatal := f.exec(t, "sh", "-c", "journalctl -u nodeagent -o json | grep -c '\"FETTLE_CHECK\":\"root-filesystem\"'"); fatal == "0" {
		t.Error("the journal has no fields of the agent")
	}
	f.awaitHostReady(t, "True")

	t.Run("preflight finds all it needs", func(t *testing.T) {
		out, err := f.Exec(t.Context(), "systemd-run", "--pipe", "--quiet", "--wait", "/usr/bin/nodeagent", "preflight", "--config=/etc/fettle/nodeagent.yaml", "--node-name="+node, "--output=json")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var got struct {
			Findings []struct {
				Need, Detail string
				Required, OK bool
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(got.Findings) < 10 {
			t.Errorf("%d findings", len(got.Findings))
		}
		for _, finding := range got.Findings {
			if !finding.OK {
				t.Errorf("%+v", finding)
			}
		}
	})
	t.Run("preflight says what is missing", func(t *testing.T) {
		out, err := f.Exec(t.Context(), "sh", "-c", "nodeagent preflight --kubeconfig=/nowhere --state-dir=/proc/none; echo status $?")
		if err != nil || !strings.Contains(out, "status 1") || !strings.Contains(out, "/nowhere") || !strings.Contains(out, "--state-dir") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("a killed agent is back and holds the lease at once", func(t *testing.T) {
		before := f.lease(t)
		f.exec(t, "systemctl", "kill", "--signal=KILL", "nodeagent.service")
		killed := time.Now()
		f.await(t, "another process holds the lease", func(context.Context) bool {
			return *f.lease(t).Spec.HolderIdentity != *before.Spec.HolderIdentity
		})
		if took := time.Since(killed); took > 20*time.Second {
			t.Errorf("it took %s, half of the lease duration", took)
		}
		if s := f.condition(t.Context(), "fettle.dev/StorageReady"); s.Status != corev1.ConditionTrue {
			t.Errorf("storage is %+v", s)
		}
		f.awaitHostReady(t, "True")
	})
	t.Run("an agent that hangs is restarted by the watchdog", func(t *testing.T) {
		f.await(t, "the agent is up", func(context.Context) bool { return f.show(t, "ActiveState") == "active" })
		pid := f.show(t, "MainPID")
		f.exec(t, "kill", "-STOP", pid)
		f.await(t, "another process runs", func(context.Context) bool {
			now := f.show(t, "MainPID")
			return now != pid && now != "0" && f.show(t, "ActiveState") == "active"
		})
		if got := f.exec(t, "sh", "-c", "journalctl -u nodeagent | grep -ci watchdog"); got == "0" {
			t.Error("it was not the watchdog")
		}
	})
	t.Run("a second agent of the machine refuses to start", func(t *testing.T) {
		out, err := f.Exec(t.Context(), "nodeagent", "run", "--config=/etc/fettle/nodeagent.yaml")
		if err == nil || !strings.Contains(out, "another agent") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("an agent elsewhere that has this one's name stays silent and says why, and this one goes on", func(t *testing.T) {
		f.awaitHostReady(t, "True")
		holder := *f.lease(t).Spec.HolderIdentity
		twin := f.startTwin(t)
		f.await(t, "its status says who speaks", func(ctx context.Context) bool {
			out, err := f.Exec(ctx, "nodeagent", "status", "--socket="+twin.socket)
			return err != nil && strings.Contains(out, "Lease          IdentityConflict: lease is held by "+holder) && strings.Contains(out, "Published      NO") &&
				strings.Contains(out, "\n"+twin.check+" ")
		})
		if code, body := get(t, twin.url+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "the lease is not held: IdentityConflict: lease is held by "+holder) {
			t.Errorf("it is ready: %d %s", code, body)
		}
		if code, body := get(t, twin.url+"/healthz"); code != http.StatusOK {
			t.Errorf("it is not alive: %d %s", code, body)
		}
		renewed := f.lease(t).Spec.RenewTime
		f.await(t, "the lease is renewed", func(context.Context) bool { return !f.lease(t).Spec.RenewTime.Equal(renewed) })
		if now := *f.lease(t).Spec.HolderIdentity; now != holder {
			t.Errorf("%s holds the lease, no longer %s", now, holder)
		}
		if c := f.condition(t.Context(), twin.condition); c.Type != "" {
			t.Errorf("it spoke for the node: %+v", c)
		}
		if out, code := f.status(t); code != 0 {
			t.Errorf("the first agent is disturbed: exit status %d\n%s", code, out)
		}
		f.exec(t, "systemctl", "stop", twin.unit)
	})
	t.Run("a systemd that does not answer is reported, and beats go on", func(t *testing.T) {
		f.awaitHostReady(t, "True")
		bus := f.exec(t, "systemctl", "show", "-P", "MainPID", "dbus.service")
		f.exec(t, "kill", "-STOP", bus)
		f.awaitHostReady(t, "False")
		renewed := f.lease(t).Spec.RenewTime
		f.await(t, "the lease is renewed", func(context.Context) bool { return !f.lease(t).Spec.RenewTime.Equal(renewed) })
		f.exec(t, "kill", "-CONT", bus)
		f.awaitHostReady(t, "True")
	})
	t.Run("what was said stays when the agent is stopped", func(t *testing.T) {
		f.exec(t, "systemctl", "stop", "nodeagent.service")
		if got := f.show(t, "Result"); got != "success" {
			t.Errorf("the unit ended with %s", got)
		}
		if s := f.condition(t.Context(), "fettle.dev/StorageReady"); s.Status != corev1.ConditionTrue {
			t.Errorf("storage is %+v", s)
		}
	})
}

// twin is a second agent of the machine's name, as another machine's would be that was cloned: with state of its own.
type twin struct {
	unit, socket, url string
	check             string // that it has and the first has not
	condition         corev1.NodeConditionType
}

func (f *fixture) startTwin(t *testing.T) twin {
	t.Helper()
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	w := twin{
		unit: "twin.service", socket: "/run/twin/agent.sock", url: "http://127.0.0.1:" + p.String(),
		check: "twin-marker", condition: "fettle.dev/TwinReady",
	}
	f.edit(t, "/etc/fettle/twin.yaml", `
nodeName: `+node+`
kubeconfig: /etc/fettle/kubeconfig
stateDir: /var/lib/twin
endpoints: {socket: `+w.socket+`, statusFile: /run/twin/status.json, metricsAddress: "127.0.0.1:`+p.String()+`"}
heartbeat: {interval: 1s, leaseDuration: 40s, statusTimeout: 500ms}
checks: [{name: `+w.check+`, kind: file, path: /nowhere, condition: `+string(w.condition)+`}]
`)
	f.exec(t, "systemd-run", "--unit="+w.unit, "nodeagent", "run", "--config=/etc/fettle/twin.yaml")
	return w
}

func (f *fixture) exec(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.Exec(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (f *fixture) show(t *testing.T, property string) string {
	t.Helper()
	return f.exec(t, "systemctl", "show", "--value", "--property="+property, "nodeagent.service")
}

func (f *fixture) condition(ctx context.Context, name corev1.NodeConditionType) corev1.NodeCondition {
	got, err := f.clients.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{Reason: err.Error()}
	}
	for _, c := range got.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (f *fixture) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := f.clients.CoordinationV1().Leases("fettle-node-lease").Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (f *fixture) awaitHostReady(t *testing.T, want string) {
	t.Helper()
	f.await(t, "the host says Ready="+want, func(ctx context.Context) bool {
		got, err := f.cluster.Kubectl(ctx, "get", "host", node, `-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && got == want
	})
}

func (f *fixture) await(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("did not come about: %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
