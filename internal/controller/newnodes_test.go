package controller

import (
	"fmt"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/internal/webhook"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/kubelet"
	"github.com/fettle-dev/fettle/test/port"
)

func taintNewNodes(r *rule) { r.Spec.TaintNewNodes = true }

// TestNewNodesByPolicy lets nodes join a cluster whose admission policy taints them, with the credentials of kubelets.
func TestNewNodesByPolicy(t *testing.T) {
	w := newWorld(t, func(o *controlplane.Options) { o.Scheduler = true })
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/new-nodes/policy.yaml"); err != nil {
		t.Fatal(err)
	}
	w.rule(t, "probe", "probe", taintNewNodes)
	await.That(t, "the API server acts on the policy", func() bool {
		return taintedWith("r.example.com/probe")(w.birth(t, "probe", "probe", client.DryRunAll))
	})
	testNewNodes(t, w)

	t.Run("while the controller is away nodes are held, and released when it is back", func(t *testing.T) {
		w.rule(t, "away", "away", taintNewNodes)
		w.heldAtBirth(t, "away")
		w.birth(t, "away-1", "away")
		w.condition(t, "away-1", network, "True")
		w.run(t, testOptions(t))
		w.tainted(t, "away-1")
	})

	t.Run("without the custom resource, and without the policy, nodes join", func(t *testing.T) {
		if _, err := w.Kubectl(t.Context(), "delete", "customresourcedefinition", "nodereadinessrules.readiness.node.x-k8s.io"); err != nil {
			t.Fatal(err)
		}
		w.birth(t, "no-rules", "probe")
		if _, err := w.Kubectl(t.Context(), "delete", "--filename=../../deploy/new-nodes/policy.yaml"); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the policy is no longer in force", func() bool {
			return taintsOf(w.birth(t, "no-policy", "probe", client.DryRunAll)) == ""
		})
	})
}

// TestNewNodesByWebhook does the same where the API server asks the controller. Two replicas serve, of which one leads; the
// API server finds them by the Service of deploy/new-nodes, which here points to this machine.
func TestNewNodesByWebhook(t *testing.T) {
	w := newWorld(t, func(o *controlplane.Options) { o.Scheduler = true })
	if err := w.ControlPlane.Apply(t.Context(), "../../deploy/new-nodes/webhook.yaml"); err != nil {
		t.Fatal(err)
	}
	w.rule(t, "probe", "probe", taintNewNodes)
	if n := w.birth(t, "unanswered", "probe"); taintsOf(n) != "" {
		t.Errorf("nobody answers, and yet born with %s", taintsOf(n))
	}

	// The machine of this test may be busy, and the API server does not wait for long by itself.
	w.patchWebhook(t, `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":30}]`)
	address := w.serveAt(t)
	program := build(t)
	first := w.start(t, program, "--leader-elect", "--webhook-bind-address="+address)
	await.That(t, "the webhook answers", func() bool {
		return taintedWith("r.example.com/probe")(w.birth(t, "probe", "probe", client.DryRunAll))
	})
	t.Run("nothing is scheduled to a node before its rule is fulfilled", func(t *testing.T) { testNeverScheduledTooSoon(t, w) })

	other := w.serveAt(t)
	w.start(t, program, "--leader-elect", "--webhook-bind-address="+other)
	t.Run("a replica that does not lead answers too", func(t *testing.T) { w.heldAtBirth(t, "probe") })
	first.Kill() // once the other leads, it keeps the certificates

	t.Run("a lost Secret and a lost trust are restored", func(t *testing.T) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: webhook.Secret}}
		if err := w.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the Secret is made anew", func() bool { return w.Get(t.Context(), client.ObjectKeyFromObject(secret), secret) == nil })
		w.patchWebhook(t, `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
		w.heldAtBirth(t, "probe")
	})

	t.Run("two hundred nodes that join at once are all born held", func(t *testing.T) {
		testBurst(t, w)
	})

	t.Run("without its configuration nodes join as they are", func(t *testing.T) {
		if _, err := w.Kubectl(t.Context(), "delete", "--filename=../../deploy/new-nodes/webhook.yaml"); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the webhook is no longer asked", func() bool {
			return taintsOf(w.birth(t, "no-webhook", "probe", client.DryRunAll)) == ""
		})
	})
}

// serveAt points the webhook's Service to a free port of this machine, and returns host:port.
func (w *world) serveAt(t *testing.T) string {
	t.Helper()
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Release() })
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: webhook.Service}}
	external := `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null}}`
	if err := w.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, []byte(external))); err != nil {
		t.Fatal(err)
	}
	w.patchWebhook(t, `[{"op":"replace","path":"/webhooks/0/clientConfig/service/port","value":`+p.String()+`}]`)
	return "127.0.0.1:" + p.String()
}

func (w *world) patchWebhook(t *testing.T, patch string) {
	t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.Configuration}}
	if err := w.Patch(t.Context(), configuration, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// testNewNodes proves what holds whatever taints new nodes. No controller runs when it begins or ends.
func testNewNodes(t *testing.T, w *world) {
	t.Run("nothing is scheduled to a node before its rule is fulfilled", func(t *testing.T) {
		defer w.run(t, testOptions(t))()
		testNeverScheduledTooSoon(t, w)
	})

	t.Run("only rules that opted in and act taint new nodes", func(t *testing.T) {
		w.rule(t, "plain", "choosy")
		w.rule(t, "suspended", "choosy", taintNewNodes, func(r *rule) { r.Spec.Suspend = true })
		w.rule(t, "dry", "choosy", taintNewNodes, dryRun)
		deleting := w.rule(t, "deleting", "choosy", taintNewNodes, func(r *rule) { r.Finalizers = []string{"example.com/stays"} })
		if err := w.Delete(t.Context(), deleting); err != nil {
			t.Fatal(err)
		}
		w.rule(t, "choosy", "choosy", taintNewNodes)
		w.heldAtBirth(t, "choosy")
		await.That(t, "a node of the pool has the one taint", func() bool {
			return taintsOf(w.birth(t, "choosy-1", "choosy", client.DryRunAll)) == "r.example.com/choosy=pending:NoSchedule"
		})
		w.editRule(t, "deleting", func(r *rule) { r.Finalizers = nil })
	})

	t.Run("NoExecute waits for eviction to be acknowledged, and the taints of one rule come together", func(t *testing.T) {
		noExecute := func(r *rule) { r.Spec.Taint.Effect = "NoExecute" }
		w.rule(t, "evicts", "evicts", taintNewNodes, noExecute, func(r *rule) { r.Spec.AllowEviction = true })
		w.rule(t, "withheld", "evicts", taintNewNodes, noExecute, func(r *rule) {
			r.Spec.Taints = []readinessv1alpha1.TaintSpec{{Key: "startup-taint.cluster-autoscaler.kubernetes.io/x", Effect: "NoSchedule"}}
		})
		w.heldAtBirth(t, "evicts")
		await.That(t, "a node has all the taints", func() bool {
			return taintsOf(w.birth(t, "evicts-1", "evicts", client.DryRunAll)) ==
				"r.example.com/evicts=pending:NoExecute r.example.com/withheld=pending:NoSchedule startup-taint.cluster-autoscaler.kubernetes.io/x=:NoSchedule"
		})
	})

	t.Run("a taint that a kubelet brings stays its own until the controller adopts it", func(t *testing.T) {
		w.rule(t, "brought", "brought", taintNewNodes)
		w.heldAtBirth(t, "brought")
		n := w.birth(t, "brought-1", "brought", corev1.Taint{Key: "r.example.com/brought", Value: "kubelet", Effect: "NoSchedule"})
		if got := taintsOf(n); got != "r.example.com/brought=kubelet:NoSchedule" || len(taints.ReadRecord(n)) > 0 {
			t.Errorf("born with taints %s and record %v", got, taints.ReadRecord(n))
		}
	})

	t.Run("a rule that is fulfilled from the outset lets its new nodes go", func(t *testing.T) {
		w.rule(t, "fulfilled", "fulfilled", taintNewNodes, func(r *rule) { r.Spec.Conditions[0].DefaultStatus = "True" })
		w.heldAtBirth(t, "fulfilled")
		w.birth(t, "fulfilled-1", "fulfilled")
		stop := w.run(t, testOptions(t))
		w.tainted(t, "fulfilled-1")
		stop()
	})

	t.Run("what a rule left on new nodes goes when the rule went before the controller looked", func(t *testing.T) {
		r := w.rule(t, "gone", "gone", taintNewNodes)
		w.heldAtBirth(t, "gone")
		n := w.birth(t, "gone-1", "gone")
		if !taints.ReadRecord(n).Names(r.UID) {
			t.Errorf("born without a record: %v", n.Annotations)
		}
		if err := w.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		stop := w.run(t, testOptions(t))
		w.tainted(t, "gone-1")
		stop()
	})

	t.Run("two hundred nodes that join at once are all born held, and all released", func(t *testing.T) {
		stop := w.run(t, testOptions(t))
		defer stop()
		testBurst(t, w)
	})
}

// testBurst lets many nodes join at once while a controller runs.
func testBurst(t *testing.T, w *world) {
	w.rule(t, "burst", "burst", taintNewNodes)
	w.heldAtBirth(t, "burst")
	const nodes, at = 200, 20
	var joining sync.WaitGroup
	for lane := range at {
		joining.Go(func() {
			for i := lane; i < nodes; i += at {
				n := w.birth(t, fmt.Sprintf("burst-%03d", i), "burst")
				if got := taintsOf(n); got != "r.example.com/burst=pending:NoSchedule" {
					t.Errorf("%s was born with taints %q", n.Name, got)
				}
			}
		})
	}
	joining.Wait()
	w.editRule(t, "burst", func(r *rule) { r.Spec.Conditions[0].RequiredStatus = "Unknown" })
	await.That(t, "all are released", func() bool {
		var list corev1.NodeList
		if err := w.List(t.Context(), &list, client.MatchingLabels{"pool": "burst"}); err != nil {
			t.Fatal(err)
		}
		held := 0
		for i := range list.Items {
			if taintsOf(&list.Items[i]) != "" {
				held++
			}
		}
		return len(list.Items) == nodes && held == 0
	})
}

// testNeverScheduledTooSoon lets pods wait for a node that does not exist yet, and follows the node from its birth.
func testNeverScheduledTooSoon(t *testing.T, w *world) {
	w.rule(t, "joins", "joins", taintNewNodes)
	w.heldAtBirth(t, "joins")
	w.waitingPod(t, "eager", "joins")
	w.waitingPod(t, "control", "free")
	versions := w.versions(t, "joins-1")
	kubelet.ForTest(t, w.ControlPlane, kubelet.Options{Node: "joins-1", Labels: map[string]string{"pool": "joins"}})
	kubelet.ForTest(t, w.ControlPlane, kubelet.Options{Node: "free-1", Labels: map[string]string{"pool": "free"}})
	await.That(t, "the scheduler, which no rule keeps from the other node, places a pod there", func() bool {
		return w.pod(t, "control").Spec.NodeName == "free-1"
	})

	w.condition(t, "joins-1", network, "False")
	w.status(t, "joins", "True", "Enforced", readinessv1alpha1.NodeCounts{Selected: 1, Held: 1})
	w.condition(t, "joins-1", network, "True")
	await.That(t, "the pod is placed once the rule is fulfilled", func() bool { return w.pod(t, "eager").Spec.NodeName == "joins-1" })

	seen := until(t, versions, "the taint is gone", func(n *corev1.Node) bool { return taintsOf(n) == "" })
	released := seen[len(seen)-1]
	if len(seen) == 1 {
		t.Error("the node was born without the taint")
	}
	bound := w.pod(t, "eager")
	if order, err := resourceversion.CompareResourceVersion(released.ResourceVersion, bound.ResourceVersion); err != nil || order >= 0 {
		t.Errorf("the pod was placed at version %s, the node released at %s (%v)", bound.ResourceVersion, released.ResourceVersion, err)
	}
}

// birth creates a node as its kubelet does, with options and taints, and returns what the API server made of it.
func (w *world) birth(t testing.TB, name, pool string, with ...any) *corev1.Node {
	t.Helper()
	path, err := w.KubeconfigFor(controlplane.NodeUser(name), controlplane.NodesGroup)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	kubelets, err := client.New(config, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool, "kubernetes.io/hostname": name}}}
	var options []client.CreateOption
	for _, a := range with {
		switch a := a.(type) {
		case corev1.Taint:
			n.Spec.Taints = append(n.Spec.Taints, a)
		case client.CreateOption:
			options = append(options, a)
		}
	}
	if err := kubelets.Create(t.Context(), n, options...); err != nil {
		t.Errorf("node %s cannot join: %v", name, err)
	}
	return n
}

// heldAtBirth waits until a rule of the pool's name is known where new nodes are tainted, by creating none.
func (w *world) heldAtBirth(t testing.TB, pool string) {
	t.Helper()
	await.That(t, "the rule of pool "+pool+" is known at admission", func() bool {
		return taintedWith("r.example.com/" + pool)(w.birth(t, "trial", pool, client.DryRunAll))
	})
}

// waitingPod makes a pod for the nodes of a pool.
func (w *world) waitingPod(t testing.TB, name, pool string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": pool},
			Containers:   []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	if err := w.Create(t.Context(), pod); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (w *world) pod(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
