package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// rules is a cache of rules, or one that fails.
type rules struct {
	client.Reader
	items []readinessv1alpha1.NodeReadinessRule
	fault error
}

func (r rules) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*readinessv1alpha1.NodeReadinessRuleList).Items = r.items
	return r.fault
}

func aRule(name string, changes ...func(*readinessv1alpha1.NodeReadinessRule)) readinessv1alpha1.NodeReadinessRule {
	r := readinessv1alpha1.NodeReadinessRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:  readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": "a"}},
			Taint:         readinessv1alpha1.TaintSpec{Key: "r.example.com/" + name, Value: "pending", Effect: "NoSchedule"},
			TaintNewNodes: true,
		},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func asked(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(raw)}}}
}

// born gives the Node as the API server makes it of the answer.
func born(t *testing.T, raw string, answer admission.Response) *corev1.Node {
	t.Helper()
	text := []byte(raw)
	if len(answer.Patches) > 0 {
		encoded, err := json.Marshal(answer.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = patch.Apply(text); err != nil {
			t.Fatalf("%v: %s", err, encoded)
		}
	}
	node := &corev1.Node{}
	if err := json.Unmarshal(text, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func TestNodesAreTaintedHoweverTheyAreWritten(t *testing.T) {
	webhook := &newNodes{cache: rules{items: []readinessv1alpha1.NodeReadinessRule{aRule("x")}}}
	for what, raw := range map[string]string{
		"no taints, no annotations":  `{"metadata":{"name":"n","labels":{"pool":"a"}},"spec":{}}`,
		"null taints":                `{"metadata":{"name":"n","labels":{"pool":"a"},"annotations":null},"spec":{"taints":null}}`,
		"empty taints":               `{"metadata":{"name":"n","labels":{"pool":"a"},"annotations":{}},"spec":{"taints":[]}}`,
		"taints and annotations":     `{"metadata":{"name":"n","labels":{"pool":"a"},"annotations":{"a/b":"c"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`,
		"a broken record of another": `{"metadata":{"name":"n","labels":{"pool":"a"},"annotations":{"fettle.dev/taints":"x"}},"spec":{}}`,
	} {
		t.Run(what, func(t *testing.T) {
			answer := webhook.Handle(t.Context(), asked(raw))
			n, before := born(t, raw, answer), born(t, raw, admission.Allowed(""))
			added := len(n.Spec.Taints) - len(before.Spec.Taints)
			if !answer.Allowed || added != 1 || n.Spec.Taints[added-1+len(before.Spec.Taints)].Key != "r.example.com/x" {
				t.Errorf("allowed %v, taints %v", answer.Allowed, n.Spec.Taints)
			}
			if !taints.ReadRecord(n).Names("uid-x") {
				t.Errorf("annotations %v", n.Annotations)
			}
			for key, value := range before.Annotations {
				if key != taints.RecordAnnotation && n.Annotations[key] != value {
					t.Errorf("annotation %s was lost", key)
				}
			}
		})
	}
}

func TestRulesThatDoNotActAreNotAsked(t *testing.T) {
	now := metav1.Now()
	type rule = readinessv1alpha1.NodeReadinessRule
	webhook := &newNodes{cache: rules{items: []rule{
		aRule("plain", func(r *rule) { r.Spec.TaintNewNodes = false }),
		aRule("deleting", func(r *rule) { r.DeletionTimestamp = &now }),
		aRule("dry", func(r *rule) { r.Spec.DryRun = true }),
		aRule("suspended", func(r *rule) { r.Spec.Suspend = true }),
		aRule("unparsable", func(r *rule) {
			r.Spec.NodeSelector.MatchExpressions = []readinessv1alpha1.NodeSelectorRequirement{{Key: "pool", Operator: "Near"}}
		}),
	}}}
	answer := webhook.Handle(t.Context(), asked(`{"metadata":{"name":"n","labels":{"pool":"a"}},"spec":{}}`))
	if !answer.Allowed || len(answer.Patches) > 0 || len(answer.Warnings) > 0 {
		t.Errorf("answer %+v", answer)
	}
}

func TestNothingIsEverDenied(t *testing.T) {
	node := `{"metadata":{"name":"n","labels":{"pool":"a"}},"spec":{}}`
	for what, tc := range map[string]struct {
		raw   string
		rules rules
	}{
		"a Node that cannot be read":    {raw: `{"metadata":`},
		"no Node":                       {},
		"a Node of another shape":       {raw: `{"spec":{"taints":"none"}}`},
		"rules that cannot be listed":   {raw: node, rules: rules{fault: errors.New("the cache is not synced")}},
		"a cache that is being stopped": {raw: node, rules: rules{fault: context.Canceled}},
	} {
		answer := (&newNodes{cache: tc.rules}).Handle(t.Context(), asked(tc.raw))
		if !answer.Allowed || len(answer.Patches) > 0 || len(answer.Warnings) != 1 {
			t.Errorf("%s: %+v", what, answer)
		}
	}
}
