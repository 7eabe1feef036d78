// Package newnodes holds what taints new Nodes at admission. Here the policy is held against the function that the webhook
// and the controller know; that nodes join, are held and released is tested where the controller runs, in
// internal/controller.
package newnodes

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

type rule = readinessv1alpha1.NodeReadinessRule

// TestPolicyDoesWhatTheControllerWould lets the API server create random nodes under random rules, and compares each with
// what taints.AtBirth makes of it.
func TestPolicyDoesWhatTheControllerWould(t *testing.T) {
	const ruleCount, nodeCount = 60, 250
	cluster := newCluster(t)
	rules := make([]*taints.Rule, 0, ruleCount)
	for i := range ruleCount {
		r := rapid.Custom(drawRule).Example(i)
		r.Name = fmt.Sprintf("r%02d", i)
		for j := range r.Spec.Taints { // conflicts between rules are settled by the controller, not here
			r.Spec.Taints[j].Key += r.Name
		}
		r.Spec.Taint.Key += r.Name
		if err := cluster.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		compiled, err := taints.Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, compiled)
	}
	cluster.awaitRules(t)
	set := taints.NewRules(rules...)

	outcomes := map[string]bool{}
	for i := range nodeCount {
		asked := rapid.Custom(drawNode).Example(i)
		asked.Name = fmt.Sprintf("n%03d", i)
		born := asked.DeepCopy()
		if err := cluster.Create(t.Context(), born, client.DryRunAll); err != nil {
			t.Fatalf("%+v cannot join: %v", asked, err)
		}
		want := asked.DeepCopy()
		if d := taints.AtBirth(asked, set); d.TaintsChanged {
			want.Spec.Taints = d.Taints
			want.Annotations = maps.Clone(asked.Annotations)
			if want.Annotations == nil {
				want.Annotations = map[string]string{}
			}
			want.Annotations[taints.RecordAnnotation] = *d.Annotations[taints.RecordAnnotation]
		}
		outcomes[describe(want)] = true
		if got, want := describe(born), describe(want); got != want {
			t.Errorf("labels %v:\nborn   %s\nwanted %s", asked.Labels, got, want)
		}
	}
	if len(outcomes) < nodeCount/2 {
		t.Errorf("%d nodes came out in %d ways only: the test proves little", nodeCount, len(outcomes))
	}
}

// TestManifests applies each way twice, the second time to no effect, and removes it.
func TestManifests(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	if err := c.Apply(t.Context(), "../crds", "../controller/00-namespaces.yaml", "../controller/10-rights.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"policy.yaml", "webhook.yaml"} {
		t.Run(file, func(t *testing.T) {
			for range 2 {
				if err := c.Apply(t.Context(), file); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Kubectl(t.Context(), "diff", "--server-side", "--filename="+file); err != nil {
				t.Error(err)
			}
			if file == "webhook.yaml" {
				testRights(t, c)
			}
			if _, err := c.Kubectl(t.Context(), "delete", "--filename="+file, "--wait"); err != nil {
				t.Error(err)
			}
		})
	}
}

// testRights names what the webhook lets the controller do beyond its own rights, and what it still may not.
func testRights(t *testing.T, c *controlplane.ControlPlane) {
	for what, want := range map[string]string{
		"watch secrets/fettle-controller-webhook --namespace=fettle-system":                     "yes",
		"update secrets/fettle-controller-webhook --namespace=fettle-system":                    "yes",
		"get secrets/other --namespace=fettle-system":                                           "no",
		"list secrets --namespace=fettle-system":                                                "no",
		"get secrets/fettle-controller-webhook --namespace=kube-system":                         "no",
		"patch mutatingwebhookconfigurations.admissionregistration.k8s.io/new-nodes.fettle.dev": "yes",
		"patch mutatingwebhookconfigurations.admissionregistration.k8s.io/other":                "no",
		"create mutatingwebhookconfigurations.admissionregistration.k8s.io":                     "no",
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:fettle-system:controller"}, strings.Fields(what)...)
		out, err := c.Kubectl(t.Context(), args...) // "no" comes with exit status 1
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("the controller's right to %s: %q, %v", what, got, err)
		}
	}
}

// TestPageExample applies the rule that docs/new-nodes.md shows.
func TestPageExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/new-nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("the page shows no rule")
	}
	r := &rule{}
	if err := yaml.UnmarshalStrict([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	cluster := newCluster(t)
	if err := cluster.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	cluster.awaitRules(t)
	for label, held := range map[string]bool{"node-role.kubernetes.io/worker": true, "node-role.kubernetes.io/control-plane": false} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{label: ""}}}
		if err := cluster.Create(t.Context(), n, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(describe(n), "readiness.k8s.io/network=:NoSchedule"); got != held {
			t.Errorf("a node with label %s: %s", label, describe(n))
		}
	}
}

type cluster struct{ client.Client }

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := controlplane.ForTest(t, controlplane.Options{})
	if err := c.Apply(t.Context(), "../crds", "policy.yaml"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, readinessv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cluster{admin}
}

// awaitRules waits until the API server knows, at admission, a rule that is made last.
func (c cluster) awaitRules(t *testing.T) {
	t.Helper()
	last := &rule{
		ObjectMeta: metav1.ObjectMeta{Name: "last"},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"last": "yes"}},
			Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: "X", RequiredStatus: "True"}},
			EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
			Taint:           readinessv1alpha1.TaintSpec{Key: "r.example.com/last", Effect: "NoSchedule"},
			TaintNewNodes:   true,
		},
	}
	if err := c.Create(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the last rule is known at admission", func() bool {
		trial := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "trial", Labels: map[string]string{"last": "yes"}}}
		if err := c.Create(t.Context(), trial, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(describe(trial), "r.example.com/last")
	})
}

// describe writes the taints and the record of a node, but for what Kubernetes itself adds.
func describe(n *corev1.Node) string {
	var out []string
	for _, taint := range n.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			out = append(out, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
	}
	for id, rules := range taints.ReadRecord(n) {
		out = append(out, fmt.Sprintf("%s for %v", id, rules))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

var (
	labelKeys   = rapid.SampledFrom([]string{"pool", "zone", "example.com/gpu"})
	labelValues = rapid.SampledFrom([]string{"a", "b", ""})
	effects     = rapid.SampledFrom([]corev1.TaintEffect{"NoSchedule", "NoExecute", "PreferNoSchedule"})
	mostly      = rapid.SampledFrom([]bool{true, true, true, false})
	rarely      = rapid.SampledFrom([]bool{false, false, false, false, false, true})
)

func drawRule(t *rapid.T) *rule {
	r := &rule{Spec: readinessv1alpha1.NodeReadinessRuleSpec{
		Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: "X", RequiredStatus: "True"}},
		EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
		Taint:           drawTaint(t),
		TaintNewNodes:   mostly.Draw(t, "taintNewNodes"),
		AllowEviction:   rapid.Bool().Draw(t, "allowEviction"),
		Suspend:         rarely.Draw(t, "suspend"),
		DryRun:          rarely.Draw(t, "dryRun"),
	}}
	taken := map[string]bool{r.Spec.Taint.Key + string(r.Spec.Taint.Effect): true}
	for _, more := range rapid.SliceOfN(rapid.Custom(drawTaint), 0, 3).Draw(t, "taints") {
		if id := more.Key + string(more.Effect); !taken[id] {
			taken[id] = true
			r.Spec.Taints = append(r.Spec.Taints, more)
		}
	}
	selector := &r.Spec.NodeSelector
	if rapid.Bool().Draw(t, "matchLabels") {
		selector.MatchLabels = map[string]readinessv1alpha1.LabelValue{
			labelKeys.Draw(t, "key"): readinessv1alpha1.LabelValue(labelValues.Draw(t, "value")),
		}
	}
	least := 0
	if selector.MatchLabels == nil {
		least = 1
	}
	selector.MatchExpressions = rapid.SliceOfN(rapid.Custom(drawExpression), least, 2).Draw(t, "matchExpressions")
	return r
}

func drawTaint(t *rapid.T) readinessv1alpha1.TaintSpec {
	return readinessv1alpha1.TaintSpec{
		Key:    rapid.SampledFrom([]string{"r.example.com/x", "r.example.com/y"}).Draw(t, "key"),
		Value:  rapid.SampledFrom([]string{"", "pending", "other"}).Draw(t, "value"),
		Effect: effects.Draw(t, "effect"),
	}
}

func drawExpression(t *rapid.T) readinessv1alpha1.NodeSelectorRequirement {
	e := readinessv1alpha1.NodeSelectorRequirement{
		Key:      labelKeys.Draw(t, "key"),
		Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "operator"),
	}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = rapid.SliceOfN(labelValues, 1, 2).Draw(t, "values")
	}
	return e
}

// drawNode gives a node with some labels, some taints of its own, perhaps of the key of a rule, and perhaps a record.
func drawNode(t *rapid.T) *corev1.Node {
	n := &corev1.Node{}
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[labelKeys.Draw(t, "key")] = labelValues.Draw(t, "value")
	}
	taken := map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "taints") {
		own := corev1.Taint{
			Key:    fmt.Sprintf("r.example.com/%sr%02d", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "of"), rapid.IntRange(0, 59).Draw(t, "rule")),
			Value:  "kubelet",
			Effect: effects.Draw(t, "effect"),
		}
		if id := own.Key + string(own.Effect); !taken[id] {
			taken[id] = true
			n.Spec.Taints = append(n.Spec.Taints, own)
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "annotations") {
	case 0:
		n.Annotations = map[string]string{"example.com/a": "b"}
	case 1:
		n.Annotations = map[string]string{taints.RecordAnnotation: `[{"key":"r.example.com/old","effect":"NoSchedule","rules":["aaaaaaaa-0000-4000-8000-000000000001"]}]`}
	case 2:
		n.Annotations = map[string]string{taints.RecordAnnotation: "broken"}
	}
	return n
}
