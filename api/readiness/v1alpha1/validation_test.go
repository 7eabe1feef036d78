package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
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
func objects(required ...v1alpha1.ObjectRequirement) func(*rule) {
	return func(r *rule) { r.Spec.Objects = required }
}

var allocatable = v1alpha1.ObjectRequirement{Name: "gpu", Allocatable: &v1alpha1.AllocatableResource{Resource: "nvidia.com/gpu", AtLeast: resource.MustParse("1")}}

func further(key string, effect corev1.TaintEffect) func(*rule) {
	return func(r *rule) { r.Spec.Taints = []v1alpha1.TaintSpec{{Key: key, Effect: effect}} }
}
func bounded(by intstr.IntOrString) func(*rule) { return func(r *rule) { r.Spec.MaxTainted = &by } }
func duration(text string) *metav1.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return &metav1.Duration{Duration: d}
}
func ageing(after string) func(*rule) {
	return func(r *rule) { r.Spec.Conditions[0].MaxAge = duration(after) }
}
func holding(adding, removing string) func(*rule) {
	return func(r *rule) {
		r.Spec.Conditions[0].For = &v1alpha1.Hold{Adding: duration(adding), Removing: duration(removing)}
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
		{name: "objects in place of conditions", change: func(r *rule) { conditions(0)(r); objects(allocatable)(r) }},
		{name: "objects in place of conditions, bootstrap-only", change: func(r *rule) { bootstrapOnly(r); conditions(0)(r); objects(allocatable)(r) }},
		{name: "an object without a kind of it", change: objects(v1alpha1.ObjectRequirement{Name: "a"}), says: "exactly one of daemonSet, object and allocatable"},
		{name: "an object of two kinds", change: objects(v1alpha1.ObjectRequirement{Name: "a", Allocatable: allocatable.Allocatable, DaemonSet: &v1alpha1.DaemonSetOnNode{Namespace: "a", Name: "b"}}),
			says: "exactly one of daemonSet, object and allocatable"},
		{name: "two objects of one name", change: objects(allocatable, allocatable), says: "Duplicate value"},
		{name: "a further taint", change: further("startup.example.com/a", "NoSchedule")},
		{name: "a further taint of the same key and another effect", change: further("readiness.k8s.io/network", "NoExecute")},
		{name: "the same taint again", change: further("readiness.k8s.io/network", "NoSchedule"), says: "taints must not repeat the key and effect of taint"},
		{name: "a further taint of Kubernetes", change: further("node.kubernetes.io/not-ready", "NoSchedule"), says: "belong to Kubernetes"},
		{name: "a bound by number", change: bounded(intstr.FromInt32(0))},
		{name: "a bound by percentage", change: bounded(intstr.FromString("100%"))},
		{name: "a negative bound", change: bounded(intstr.FromInt32(-1)), says: "maxTainted must be a number, 0 or more, or a percentage like 10%"},
		{name: "a bound above all", change: bounded(intstr.FromString("101%")), says: "maxTainted must be"},
		{name: "a number in quotes", change: bounded(intstr.FromString("10")), says: "maxTainted must be"},
		{name: "an age", change: ageing("90s")},
		{name: "an age of less than a second", change: ageing("900ms"), says: "maxAge must be at least 1s"},
		{name: "a hold", change: holding("1m", "0s")},
		{name: "a negative hold before adding", change: holding("-1s", "0s"), says: "adding must not be negative"},
		{name: "a negative hold before removing", change: holding("0s", "-1s"), says: "removing must not be negative"},
		{name: "a bootstrap after every reboot", change: func(r *rule) { bootstrapOnly(r); r.Spec.RegateOnReboot = true }},
		{name: "a continuous rule after every reboot", change: func(r *rule) { r.Spec.RegateOnReboot = true }, says: "regateOnReboot can be used with enforcementMode bootstrap-only only"},
		{name: "switches", change: func(r *rule) { r.Spec.AllowEviction, r.Spec.Suspend, r.Spec.TaintNewNodes = true, true, true }},
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
