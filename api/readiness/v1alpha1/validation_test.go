package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

type rule = v1alpha1.NodeReadinessRule

// valid is a rule that the API server accepts.
func valid() *rule {
	return &rule{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rule-"},
		Spec: v1alpha1.NodeReadinessRuleSpec{
			Conditions:      []v1alpha1.ConditionRequirement{{Type: "example.com/Network", RequiredStatus: "True"}},
			EnforcementMode: v1alpha1.EnforcementModeContinuous,
			Taint:           v1alpha1.TaintSpec{Key: "readiness.k8s.io/network", Effect: "NoSchedule"},
			NodeSelector:    v1alpha1.NodeSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": "workers"}},
		},
	}
}

func key(k string) func(*rule) { return func(r *rule) { r.Spec.Taint.Key = k } }
func labelled(k string, v v1alpha1.LabelValue) func(*rule) {
	return func(r *rule) { r.Spec.NodeSelector.MatchLabels = map[string]v1alpha1.LabelValue{k: v} }
}
func expression(k string, operator metav1.LabelSelectorOperator, values ...string) func(*rule) {
	return func(r *rule) {
		r.Spec.NodeSelector = v1alpha1.NodeSelector{MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: k, Operator: operator, Values: values}}}
	}
}
func conditions(n int) func(*rule) {
	return func(r *rule) {
		r.Spec.Conditions = nil
		for i := range n {
			r.Spec.Conditions = append(r.Spec.Conditions, v1alpha1.ConditionRequirement{Type: fmt.Sprintf("example.com/%d", i), RequiredStatus: "True"})
		}
	}
}
func bootstrapOnly(r *rule) { r.Spec.EnforcementMode = v1alpha1.EnforcementModeBootstrapOnly }

// The schema and its CEL rules, as the real API server applies them. Nothing else refuses a rule.
func TestSchema(t *testing.T) {
	c := startedWithCRDs(t)
	for _, tc := range []struct {
		name   string
		change func(*rule)
		says   string // part of the message; empty when the rule is accepted
	}{
		{name: "a valid rule", change: func(*rule) {}},
		{name: "a free taint prefix", change: key("readiness.example.com/network-unavailable")},
		{name: "a startup taint of the cluster autoscaler", change: key("startup-taint.cluster-autoscaler.kubernetes.io/network")},
		{name: "a taint key without a prefix", change: key("network"), says: "exactly one '/' separator"},
		{name: "a taint key with two slashes", change: key("readiness.k8s.io/a/b"), says: "exactly one '/' separator"},
		{name: "an empty name part", change: key("readiness.k8s.io/"), says: "1-63 characters"},
		{name: "a name part of 63 characters", change: key("readiness.k8s.io/" + strings.Repeat("a", 63))},
		{name: "a name part of 64 characters", change: key("readiness.k8s.io/" + strings.Repeat("a", 64)), says: "1-63 characters"},
		{name: "a name part with a space", change: key("readiness.k8s.io/a b"), says: "must consist of alphanumeric characters"},
		{name: "a name part that ends in a dash", change: key("readiness.k8s.io/a-"), says: "must start and end with an alphanumeric character"},
		{name: "a prefix with capitals", change: key("Readiness.k8s.io/a"), says: "must be a DNS subdomain"},
		{name: "an empty prefix", change: key("/a"), says: "must be a DNS subdomain"},
		{name: "a taint of Kubernetes", change: key("node.kubernetes.io/not-ready"), says: "belong to Kubernetes"},
		{name: "a taint of roles", change: key("node-role.kubernetes.io/control-plane"), says: "belong to Kubernetes"},
		{name: "a taint of the cloud provider", change: key("node.cloudprovider.kubernetes.io/uninitialized"), says: "belong to Kubernetes"},
		{name: "an unknown effect", change: func(r *rule) { r.Spec.Taint.Effect = "NoEntry" }, says: `supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},
		{name: "a taint value that is no label value", change: func(r *rule) { r.Spec.Taint.Value = "a b" }, says: "spec.taint.value"},
		{name: "a taint value of 64 characters", change: func(r *rule) { r.Spec.Taint.Value = strings.Repeat("a", 64) }, says: "may not be more than 63 bytes"},
		{name: "bootstrap-only", change: bootstrapOnly},
		{name: "bootstrap-only with allOf", change: func(r *rule) { bootstrapOnly(r); r.Spec.ConditionPolicy = "allOf" }},
		{name: "bootstrap-only with anyOf", change: func(r *rule) { bootstrapOnly(r); r.Spec.ConditionPolicy = "anyOf" }, says: "conditionPolicy anyOf cannot be used with enforcementMode bootstrap-only"},
		{name: "bootstrap-only with a default", change: func(r *rule) { bootstrapOnly(r); r.Spec.Conditions[0].DefaultStatus = "True" }, says: "defaultStatus cannot be used with enforcementMode bootstrap-only"},
		{name: "an unknown mode", change: func(r *rule) { r.Spec.EnforcementMode = "always" }, says: `supported values: "bootstrap-only", "continuous"`},
		{name: "no mode", change: func(r *rule) { r.Spec.EnforcementMode = "" }, says: "spec.enforcementMode"},
		{name: "no conditions", change: conditions(0), says: "spec.conditions"},
		{name: "32 conditions", change: conditions(32)},
		{name: "33 conditions", change: conditions(33), says: "must have at most 32 items"},
		{name: "a condition type twice", change: func(r *rule) { r.Spec.Conditions = append(r.Spec.Conditions, r.Spec.Conditions[0]) }, says: "Duplicate value"},
		{name: "an unknown status", change: func(r *rule) { r.Spec.Conditions[0].RequiredStatus = "Maybe" }, says: `supported values: "True", "False", "Unknown"`},
		{name: "an empty selector", change: func(r *rule) { r.Spec.NodeSelector = v1alpha1.NodeSelector{} }, says: "nodeSelector must not be empty"},
		{name: "every node", change: expression("kubernetes.io/hostname", "Exists")},
		{name: "In without values", change: expression("pool", "In"), says: "values must be given with operators In and NotIn"},
		{name: "Exists with values", change: expression("pool", "Exists", "a"), says: "values must be given with operators In and NotIn"},
		{name: "an unknown operator", change: expression("pool", "Near"), says: `supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
		{name: "an expression key that is no label key", change: expression("a b", "Exists"), says: "matchExpressions[0].key"},
		{name: "an expression value that is no label value", change: expression("pool", "In", "a b"), says: "matchExpressions[0].values[0]"},
		{name: "a label key that is none", change: labelled("a b", "c"), says: "keys of matchLabels must be label keys"},
		{name: "a label value that is none", change: labelled("a", "b c"), says: "spec.nodeSelector.matchLabels.a"},
		{name: "a label with a prefix and without a value", change: labelled("node-role.kubernetes.io/worker", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := valid()
			tc.change(r)
			err := c.Create(t.Context(), r)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.says != "" && err == nil:
				t.Error("accepted")
			case tc.says != "" && !strings.Contains(err.Error(), tc.says):
				t.Errorf("the message lacks %q: %v", tc.says, err)
			}
		})
	}
	t.Run("a rule may be edited", func(t *testing.T) {
		r := valid()
		if err := c.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		key("other.example.com/storage")(r)
		r.Spec.Taint.Value, r.Spec.Taint.Effect = "x", corev1.TaintEffectNoExecute
		bootstrapOnly(r)
		labelled("pool", "other")(r)
		conditions(3)(r)
		if err := c.Update(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
	t.Run("rules are found by mode, taint key and dryRun", func(t *testing.T) {
		r := valid()
		key("selectable.example.com/a")(r)
		if err := c.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		var found v1alpha1.NodeReadinessRuleList
		fields := client.MatchingFields{"spec.taint.key": "selectable.example.com/a", "spec.enforcementMode": "continuous", "spec.dryRun": "false"}
		if err := c.List(t.Context(), &found, fields); err != nil || len(found.Items) != 1 || found.Items[0].Name != r.Name {
			t.Errorf("found %d rules, %v", len(found.Items), err)
		}
	})
}

func startedWithCRDs(t *testing.T) client.Client {
	cp := controlplane.ForTest(t, controlplane.Options{})
	if err := cp.Apply(t.Context(), "../../../deploy/crds"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
