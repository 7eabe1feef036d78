package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// rig is a real control plane with Fettle's kinds and rights, and what a test does there as an administrator.
type rig struct {
	*controlplane.ControlPlane
	admin client.Client
	// agentKubeconfig carries the ServiceAccount that agents have.
	agentKubeconfig string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true, Audit: true})
	manifests := "../../deploy/"
	if err := c.Apply(t.Context(), manifests+"crds", manifests+"daemonset/00-namespaces.yaml", manifests+"daemonset/10-rights.yaml"); err != nil {
		t.Fatal(err)
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, fettlev1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), "fettle-system", "nodeagent", nil)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "hosts are served", func() bool { return admin.List(t.Context(), &fettlev1alpha1.HostList{}) == nil })
	return &rig{ControlPlane: c, admin: admin, agentKubeconfig: kubeconfig}
}

// atOnce is how many tests share a rig at a time. They wait for most of their time, so that it does not depend on the
// number of processors, as parallel tests do.
const atOnce = 8

// together runs tests side by side, each with a node name of its own.
func (r *rig) together(t *testing.T, tests map[string]func(*testing.T, *rig, string)) {
	t.Helper()
	var running sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for name, test := range tests {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			t.Run(name, func(t *testing.T) { test(t, r, fmt.Sprintf("n-%d", versions.Add(1))) })
		})
	}
	running.Wait()
}

// createNode makes a Node that is ready and has another reporter's condition.
func (r *rig) createNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	before, at := node.DeepCopy(), metav1.Now()
	node.Status.Conditions = append(node.Status.Conditions,
		corev1.NodeCondition{Type: "Ready", Status: "True", Reason: "KubeletReady", LastHeartbeatTime: at, LastTransitionTime: at},
		corev1.NodeCondition{Type: "example.com/Foreign", Status: "False", Reason: "Foreign", LastHeartbeatTime: at, LastTransitionTime: at})
	if err := r.admin.Status().Patch(t.Context(), node, client.StrategicMergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return node
}

// createHost does what the controller does for a Node.
func (r *rig) createHost(t *testing.T, name string, nodeUID types.UID) *fettlev1alpha1.Host {
	t.Helper()
	host := &fettlev1alpha1.Host{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: nodeUID}}},
		Spec:       fettlev1alpha1.HostSpec{NodeUID: nodeUID},
	}
	if err := r.admin.Create(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	return host
}

func (r *rig) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := r.admin.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func (r *rig) host(t *testing.T, name string) *fettlev1alpha1.Host {
	t.Helper()
	host := &fettlev1alpha1.Host{}
	if err := r.admin.Get(t.Context(), client.ObjectKey{Name: name}, host); err != nil {
		t.Fatal(err)
	}
	return host
}

// lease is nil when there is none.
func (r *rig) lease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	err := r.admin.Get(t.Context(), client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (r *rig) holder(t *testing.T, name string) string {
	t.Helper()
	if lease := r.lease(t, name); lease != nil {
		return *lease.Spec.HolderIdentity
	}
	return ""
}

// fallSilent writes what the controller writes for an agent that fell silent: Node first, then Host.
func (r *rig) fallSilent(t *testing.T, name string) {
	t.Helper()
	host := r.host(t, name)
	var conditions []corev1.NodeCondition
	for _, c := range host.Status.ConditionTypes {
		conditions = append(conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c), Status: "Unknown", Reason: fettlev1alpha1.ReasonAgentSilent,
			LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.admin.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	host.Status.Conditions[0].Status, host.Status.Conditions[0].Reason = "Unknown", fettlev1alpha1.ReasonHostStatusUnknown
	if err := r.admin.Status().Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// said is what a Node says, e.g. "NetworkReady=True/OK StorageReady=True/OK"; types of others are left out.
func said(node *corev1.Node) string {
	var all []string
	for _, c := range node.Status.Conditions {
		if name, ours := strings.CutPrefix(string(c.Type), "fettle.dev/"); ours {
			all = append(all, fmt.Sprintf("%s=%s/%s", name, c.Status, c.Reason))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// requests of one user agent since a mark.
func (r *rig) requests(t *testing.T, since controlplane.Mark, version string) controlplane.Requests {
	t.Helper()
	all, err := r.RequestsSince(since)
	if err != nil {
		t.Fatal(err)
	}
	return all.Where(func(q controlplane.Request) bool {
		return strings.HasPrefix(q.UserAgent, "fettle-nodeagent/"+version+" ")
	})
}

func (r *rig) mark(t *testing.T) controlplane.Mark {
	t.Helper()
	m, err := r.Mark()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// part is the agent's side of the cluster without the checks: the test says what they came to.
type part struct {
	*cluster
	version string
	known   *atomic.Value // the UID of the Node that was told last
	stop    func()
}

// beats are quick, but not so quick that a busy machine makes agents lose their leases.
var beats = config.Heartbeat{Interval: 2 * time.Second, LeaseDuration: 12 * time.Second, StatusTimeout: 10 * time.Second}

var versions atomic.Int32

func startPart(t *testing.T, kubeconfig, node, stateDir string) *part {
	t.Helper()
	version := fmt.Sprintf("v%d", versions.Add(1))
	var progress atomic.Uint64
	known := &atomic.Value{}
	p := &part{version: version, known: known, cluster: newCluster(clusterOptions{
		node:     node,
		self:     fettlev1alpha1.HostAgent{Version: version, ID: node + "_" + version, Mode: modeService, BootID: "boot", StartedAt: metav1.Now()},
		source:   kubeclient.Source{Kubeconfig: kubeconfig},
		stateDir: stateDir, heartbeat: beats,
		progress:   func() uint64 { return progress.Add(1) },
		identified: func(node types.UID) { known.Store(node) },
		log:        slog.New(slog.NewTextHandler(t.Output(), nil)).With("agent", version),
	})}
	p.setRuntime(report.Runtime{Reachable: true, Detail: "systemd answers"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx); close(done) }()
	p.stop = func() { cancel(); <-done }
	t.Cleanup(p.stop)
	return p
}

// finding makes a report of NetworkReady and StorageReady, well but for a reason of the network.
func finding(networkReason string) health.Report {
	e := health.NewEngine([]health.Check{
		{Name: "net", Condition: fettlev1alpha1.ConditionNetworkReady, Thresholds: health.Thresholds{Failure: 1, Success: 1}},
		{Name: "disk", Condition: fettlev1alpha1.ConditionStorageReady, Thresholds: health.Thresholds{Failure: 1, Success: 1}},
	})
	network := health.Result{Verdict: health.OK, Reason: health.ReasonOK}
	if networkReason != "" {
		network = health.Result{Verdict: health.Fatal, Reason: networkReason, Message: "broken"}
	}
	e.Observe("net", network, time.Now())
	e.Observe("disk", health.Result{Verdict: health.OK, Reason: health.ReasonOK}, time.Now())
	return e.Report()
}

const (
	allWell  = "Healthy=True/OK NetworkReady=True/OK StorageReady=True/OK"
	netBad   = "Healthy=False/Broken NetworkReady=False/Broken StorageReady=True/OK"
	silenced = "Healthy=Unknown/AgentSilent NetworkReady=Unknown/AgentSilent StorageReady=Unknown/AgentSilent"
)

// patience is for machines that are very busy.
const patience = 3 * time.Minute

func (r *rig) awaitSaid(t *testing.T, node, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(patience); got != want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("node %s says  %s\nwant it to say %s", node, got, want)
		}
		got = said(r.node(t, node))
	}
}
