package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

const (
	ruleUID = "aaaaaaaa-0000-4000-8000-000000000001"
	marker  = readinessv1alpha1.BootstrapMarkerPrefix + ruleUID
	claim   = `[{"key":"quarantine.example.com/breach","effect":"NoSchedule","rules":["` + ruleUID + `"]}]`
)

// Who writes. All but the first two may patch and update nodes, and what else is said.
const (
	kubelet    = "system:node:n1"
	master     = "administrator in system:masters"
	controller = "system:serviceaccount:fettle-system:controller"
	editor     = "editor of nodes"
	recorder   = "editor of nodes and noderecords"
	all        = "user with the role cluster-admin"
)

// cluster is a control plane with the manifests applied and a node that the controller has notes on.
type cluster struct {
	*controlplane.ControlPlane
	node *corev1.Node
	by   map[string]*kubernetes.Clientset
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		ControlPlane: controlplane.ForTest(t, controlplane.Options{
			ControllerManager:          true, // it checks the types of expressions; what it does to silent nodes would only disturb
			ExtraControllerManagerArgs: []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller"},
		}),
		by: map[string]*kubernetes.Clientset{},
	}
	c.must(t, c.Apply(t.Context(), "../crds", "00-namespaces.yaml", "10-rights.yaml", "16-policies.yaml", "../new-nodes/policy.yaml"))
	for user, groups := range map[string][]string{
		kubelet: {controlplane.NodesGroup, "system:authenticated"}, master: nil, controller: nil, editor: nil, recorder: nil, all: nil,
	} {
		config := rest.CopyConfig(c.Config())
		if user != master {
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		}
		clients, err := kubernetes.NewForConfig(config)
		c.must(t, err)
		c.by[user] = clients
	}
	for _, args := range [][]string{
		{"clusterrole", "nodes", "--verb=create,get,update,patch", "--resource=nodes,nodes/status"},
		{"clusterrolebinding", "nodes", "--clusterrole=nodes", "--user=" + editor, "--user=" + recorder},
		{"clusterrole", "noderecords", "--verb=update", "--resource=hosts.fettle.dev"},
		{"clusterrolebinding", "noderecords", "--clusterrole=noderecords", "--user=" + recorder},
		{"clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=" + all},
	} {
		_, err := c.Kubectl(t.Context(), append([]string{"create"}, args...)...)
		c.must(t, err)
	}
	// kubectl create knows no resource that has no objects.
	_, err := c.Kubectl(t.Context(), "patch", "clusterrole", "noderecords", "--type=json", `--patch=[{"op":"replace","path":"/rules/0/resources","value":["noderecords"]}]`)
	c.must(t, err)
	c.node, err = c.by[master].CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
		"example.com/note": "n", taints.RecordAnnotation: `[{"key":"r.example.com/x","effect":"NoSchedule","rules":["` + ruleUID + `"]}]`,
		taints.JudgedAnnotation: `["` + ruleUID + `"]`, marker: "{}",
	}}}, metav1.CreateOptions{})
	c.must(t, err)
	await.That(t, "the policy holds", func() bool { return c.patch(t, kubelet, annotate(taints.RecordAnnotation, claim)) != nil })
	await.That(t, "the rights are known", func() bool { return c.patch(t, recorder, annotate(taints.RecordAnnotation, claim)) == nil })
	return c
}

func (c *cluster) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patch is a merge patch of node n1, or of a subresource. Like every write here it is a dry run, so that none sees another's.
func (c *cluster) patch(t *testing.T, by string, body any, subresources ...string) error {
	t.Helper()
	encoded, err := json.Marshal(body)
	c.must(t, err)
	_, err = c.by[by].CoreV1().Nodes().Patch(t.Context(), c.node.Name, types.MergePatchType, encoded, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
	return err
}

func (c *cluster) create(t *testing.T, by string, node *corev1.Node) (*corev1.Node, error) {
	t.Helper()
	return c.by[by].CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

type object = map[string]any

// annotate changes an annotation, or with nil removes it.
func annotate(key string, value any) object {
	return object{"metadata": object{"annotations": object{key: value}}}
}

// refused asks for the policy's refusal, and that it names the annotations.
func refused(t *testing.T, err error, names ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'noderecords.fettle.dev'") {
		t.Errorf("got %v, want the policy to refuse it", err)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestNodeRecords(t *testing.T) {
	c := newCluster(t)
	t.Run("only who is meant to changes them", func(t *testing.T) { testChanges(t, c) })
	t.Run("everything else is as without the policy", func(t *testing.T) { testOtherChanges(t, c) })
	t.Run("at a node's creation", func(t *testing.T) { testBirth(t, c) })
	t.Run("new nodes are held at admission", func(t *testing.T) { testNewNodes(t, c) })
	t.Run("the API server finds no fault in the expressions", func(t *testing.T) { testTypes(t, c) })
}

func testChanges(t *testing.T, c *cluster) {
	for _, tc := range []struct {
		name  string
		patch object
		names []string
	}{
		{"claim a taint", annotate(taints.RecordAnnotation, claim), []string{taints.RecordAnnotation}},
		{"drop the record", annotate(taints.RecordAnnotation, nil), []string{taints.RecordAnnotation}},
		{"empty the record", annotate(taints.RecordAnnotation, ""), []string{taints.RecordAnnotation}},
		{"say who has judged", annotate(taints.JudgedAnnotation, "[]"), []string{taints.JudgedAnnotation}},
		{"forget who has judged", annotate(taints.JudgedAnnotation, nil), []string{taints.JudgedAnnotation}},
		{"pass a rule", annotate(readinessv1alpha1.BootstrapMarkerPrefix+"bbbbbbbb-0000-4000-8000-000000000002", "{}"), []string{"bbbbbbbb-0000-4000-8000-000000000002"}},
		{"pass a rule by its name", annotate(readinessv1alpha1.BootstrapMarkerPrefix+"network", "true"), []string{readinessv1alpha1.BootstrapMarkerPrefix + "network"}},
		{"pass a rule in another boot", annotate(marker, `{"boot-id":"2"}`), []string{marker}},
		{"forget a passed rule", annotate(marker, nil), []string{marker}},
		{"drop all annotations", object{"metadata": object{"annotations": nil}}, []string{taints.RecordAnnotation, taints.JudgedAnnotation, marker}},
	} {
		for _, subresources := range [][]string{nil, {"status"}} {
			t.Run(tc.name+" "+strings.Join(subresources, ""), func(t *testing.T) {
				for _, who := range []string{kubelet, editor} {
					refused(t, c.patch(t, who, tc.patch, subresources...), tc.names...)
				}
				for _, who := range []string{master, controller, recorder, all} {
					if err := c.patch(t, who, tc.patch, subresources...); err != nil {
						t.Errorf("by %s: %v", who, err)
					}
				}
			})
		}
	}
	t.Run("by an update", func(t *testing.T) {
		update := func(value string) error {
			node := c.node.DeepCopy()
			node.ResourceVersion = ""
			node.Annotations[taints.RecordAnnotation] = value
			_, err := c.by[kubelet].CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		refused(t, update(claim), taints.RecordAnnotation)
		if err := update(c.node.Annotations[taints.RecordAnnotation]); err != nil {
			t.Errorf("an update that changes no annotation: %v", err)
		}
	})
}

func testOtherChanges(t *testing.T, c *cluster) {
	for name, patch := range map[string]object{
		"another annotation":            annotate("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
		"remove another annotation":     annotate("example.com/note", nil),
		"an annotation that looks like": annotate("fettle.dev/taints-of-mine", claim),
		"an annotation of the upstream": annotate("readiness.k8s.io/other", "x"),
		"a label":                       {"metadata": object{"labels": object{"example.com/a": "b"}}},
		"the same record":               annotate(taints.RecordAnnotation, c.node.Annotations[taints.RecordAnnotation]),
	} {
		for _, who := range []string{kubelet, editor, controller} {
			if err := c.patch(t, who, patch); err != nil {
				t.Errorf("%s by %s: %v", name, who, err)
			}
		}
	}
	if err := c.patch(t, kubelet, object{"status": object{"phase": "Running"}}, "status"); err != nil {
		t.Errorf("status by the kubelet: %v", err)
	}
	t.Run("a node with much in it", func(t *testing.T) { // expressions have a budget
		large := object{"example.com/long": strings.Repeat("x", 100<<10), taints.RecordAnnotation: strings.Repeat("y", 100<<10)}
		for i := range 500 {
			large[fmt.Sprintf("example.com/a-%d", i)] = strings.Repeat("v", 60)
		}
		if err := c.patch(t, controller, object{"metadata": object{"annotations": large}}); err != nil {
			t.Error(err)
		}
		refused(t, c.patch(t, kubelet, object{"metadata": object{"annotations": large}}), taints.RecordAnnotation)
	})
}

// testBirth : a kubelet may create its node with a record of the taints that it creates it with, since what is added at
// admission looks the same.
func testBirth(t *testing.T, c *cluster) {
	const first, second = `{"key":"r.example.com/x","effect":"NoSchedule","rules":["` + ruleUID + `"]}`, `{"key":"r.example.com/y","effect":"NoExecute","rules":["` + ruleUID + `","bbbbbbbb-0000-4000-8000-000000000002"]}`
	brings := []corev1.Taint{{Key: "r.example.com/x", Value: "v", Effect: "NoSchedule"}, {Key: "r.example.com/y", Effect: "NoExecute"}}
	record := func(value string) map[string]string { return map[string]string{taints.RecordAnnotation: value} }
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		allowed     bool
	}{
		{"nothing noted", map[string]string{"example.com/a": "b"}, true},
		{"a taint that it has", record("[" + first + "]"), true},
		{"all taints that it has", record("[" + first + "," + second + "]"), true},
		{"a taint that it does not have", record(claim), false},
		{"one that it has and one that it does not have", record("[" + first + "," + claim[1:]), false},
		{"another effect of a key that it has", record(strings.Replace("["+first+"]", "NoSchedule", "NoExecute", 1)), false},
		{"the same key twice in an entry", record(strings.Replace("["+first+"]", `"rules"`, `"key":"quarantine.example.com/breach","rules"`, 1)), false},
		{"more in an entry", record(strings.Replace("["+first+"]", `"]}`, `"],"key":"quarantine.example.com/breach"}`, 1)), false},
		{"owned by no UID", record(strings.Replace("["+first+"]", ruleUID, "x", 1)), false},
		{"no record at all", record("{}"), false},
		{"an empty record", record("[]"), false},
		{"judged", map[string]string{taints.JudgedAnnotation: `["` + ruleUID + `"]`}, false},
		{"passed", map[string]string{marker: "{}"}, false},
		{"passed beside a taint that it has", map[string]string{marker: "{}", taints.RecordAnnotation: "[" + first + "]"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: tc.annotations}, Spec: corev1.NodeSpec{Taints: brings}}
			_, err := c.create(t, kubelet, node)
			if tc.allowed && !apierrors.IsAlreadyExists(err) {
				t.Errorf("got %v, want it to be refused for its name alone", err)
			}
			if !tc.allowed {
				refused(t, err)
			}
			node.Name = "n2"
			if _, err := c.create(t, master, node); err != nil {
				t.Errorf("by an administrator: %v", err)
			}
		})
	}
}

// testNewNodes lets deploy/new-nodes taint nodes that kubelets create, and compares with what the webhook answers.
func testNewNodes(t *testing.T, c *cluster) {
	for _, name := range []string{"one", "two"} {
		_, err := c.Kubectl(t.Context(), "create", "--filename="+file(t, object{
			"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": object{"name": name},
			"spec": object{
				"taintNewNodes": true, "enforcementMode": "continuous", "nodeSelector": object{"matchLabels": object{"pool": "workers"}},
				"conditions": []any{object{"type": "X", "requiredStatus": "True"}}, "taint": object{"key": "r.example.com/" + name, "effect": "NoSchedule"},
			},
		}))
		c.must(t, err)
	}
	config := rest.CopyConfig(c.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:n3", Groups: []string{controlplane.NodesGroup, "system:authenticated"}}
	clients, err := kubernetes.NewForConfig(config)
	c.must(t, err)
	c.by["system:node:n3"] = clients
	asked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3", Labels: map[string]string{"pool": "workers"}}}
	var born *corev1.Node
	await.That(t, "a node to be born with the taints of both rules", func() bool {
		var err error
		born, err = c.create(t, "system:node:n3", asked)
		c.must(t, err)
		return len(taints.ReadRecord(born)) == 2
	})
	var rules []*taints.Rule
	for _, taint := range born.Spec.Taints {
		if strings.HasPrefix(taint.Key, "r.example.com/") {
			rule, err := taints.Compile(&readinessv1alpha1.NodeReadinessRule{
				ObjectMeta: metav1.ObjectMeta{Name: taint.Key, UID: taints.ReadRecord(born)[taints.ID{Key: taint.Key, Effect: taint.Effect}][0]},
				Spec:       readinessv1alpha1.NodeReadinessRuleSpec{TaintNewNodes: true, Taint: readinessv1alpha1.TaintSpec{Key: taint.Key, Effect: taint.Effect}},
			})
			c.must(t, err)
			rules = append(rules, rule)
		}
	}
	decision := taints.AtBirth(asked, taints.NewRules(rules...))
	answered := asked.DeepCopy()
	answered.Name, answered.Labels = "n1", nil // the policy has nothing to add
	answered.Spec.Taints, answered.Annotations = decision.Taints, map[string]string{taints.RecordAnnotation: *decision.Annotations[taints.RecordAnnotation]}
	if _, err := c.create(t, kubelet, answered); !apierrors.IsAlreadyExists(err) {
		t.Errorf("with what the webhook adds: %v", err)
	}
	asked.Annotations = map[string]string{taints.RecordAnnotation: claim}
	_, err = c.create(t, "system:node:n3", asked)
	refused(t, err, taints.RecordAnnotation)
}

// testTypes waits for the controller manager to have looked at the policy.
func testTypes(t *testing.T, c *cluster) {
	var policy *admissionregistrationv1.ValidatingAdmissionPolicy
	await.That(t, "the policy was looked at", func() bool {
		var err error
		policy, err = c.by[master].AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "noderecords.fettle.dev", metav1.GetOptions{})
		c.must(t, err)
		return policy.Status.ObservedGeneration == policy.Generation && policy.Status.TypeChecking != nil
	})
	for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
		t.Errorf("%s: %s", w.FieldRef, w.Warning)
	}
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Error("it fails open")
	}
}
