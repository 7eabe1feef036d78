package taints

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 987, time.UTC)

const (
	networkKey = "readiness.example.com/network"
	uidA       = types.UID("aaaaaaaa-0000-4000-8000-000000000001")
	uidB       = types.UID("bbbbbbbb-0000-4000-8000-000000000002")
)

// edit changes a rule or a node of a test case.
type edit[T any] func(*T)

type apiRule = readinessv1alpha1.NodeReadinessRule

// rule gives a continuous rule "network" over pool=workers that needs example.com/Network=True.
func rule(uid types.UID, name string, changes ...edit[apiRule]) *apiRule {
	r := &apiRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
		Spec: readinessv1alpha1.NodeReadinessRuleSpec{
			NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": "workers"}},
			Conditions:      []readinessv1alpha1.ConditionRequirement{{Type: "example.com/Network", RequiredStatus: "True"}},
			EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
			Taint:           readinessv1alpha1.TaintSpec{Key: networkKey, Value: "pending", Effect: corev1.TaintEffectNoSchedule},
		},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func dryRun(r *apiRule) { r.Spec.DryRun = true }
func bootstrapOnly(r *apiRule) {
	r.Spec.EnforcementMode = readinessv1alpha1.EnforcementModeBootstrapOnly
}
func taintKey(key string) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Taint.Key = key }
}
func taintValue(value string) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Taint.Value = value }
}
func effect(e corev1.TaintEffect) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Taint.Effect = e }
}
func allowEviction(r *apiRule) { r.Spec.AllowEviction = true }

// also adds further taints, as key=value:effect.
func also(more ...string) edit[apiRule] {
	return func(r *apiRule) {
		for _, m := range more {
			t := parseTaint(m)
			r.Spec.Taints = append(r.Spec.Taints, readinessv1alpha1.TaintSpec{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
}

// atMost bounds the nodes held, as a number or a percentage.
func atMost(bound string) edit[apiRule] {
	return func(r *apiRule) { r.Spec.MaxTainted = new(intstr.Parse(bound)) }
}

// waits makes changes of the rule's first condition last before they count.
func waits(adding, removing time.Duration) edit[apiRule] {
	return func(r *apiRule) {
		r.Spec.Conditions[0].For = &readinessv1alpha1.Hold{Adding: &metav1.Duration{Duration: adding}, Removing: &metav1.Duration{Duration: removing}}
	}
}

// ages makes the rule's first condition too old after a time.
func ages(limit time.Duration) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Conditions[0].MaxAge = &metav1.Duration{Duration: limit} }
}

func suspended(r *apiRule) { r.Spec.Suspend = true }
func regates(r *apiRule)   { bootstrapOnly(r); r.Spec.RegateOnReboot = true }
func pool(name string) edit[apiRule] {
	return func(r *apiRule) {
		r.Spec.NodeSelector.MatchLabels = map[string]readinessv1alpha1.LabelValue{"pool": readinessv1alpha1.LabelValue(name)}
	}
}
func needs(conditionType string, status corev1.ConditionStatus) edit[apiRule] {
	return func(r *apiRule) {
		r.Spec.Conditions = []readinessv1alpha1.ConditionRequirement{{Type: conditionType, RequiredStatus: status}}
	}
}
func unparsable(r *apiRule) {
	r.Spec.NodeSelector.MatchExpressions = []readinessv1alpha1.NodeSelectorRequirement{{Key: "pool", Operator: "Near"}}
}

// node gives a node of pool=workers.
func node(changes ...edit[corev1.Node]) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "node", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Labels: map[string]string{"pool": "workers"}, Annotations: map[string]string{},
	}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func has(conditionType string, status corev1.ConditionStatus) edit[corev1.Node] {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeConditionType(conditionType), Status: status})
	}
}
func tainted(taints ...string) edit[corev1.Node] {
	return func(n *corev1.Node) {
		for _, t := range taints {
			n.Spec.Taints = append(n.Spec.Taints, parseTaint(t))
		}
	}
}
func owns(key string, effect corev1.TaintEffect, rules ...types.UID) edit[corev1.Node] {
	return func(n *corev1.Node) {
		record := ReadRecord(n)
		record[ID{key, effect}] = rules
		n.Annotations[RecordAnnotation] = record.encode()
	}
}
func annotated(key, value string) edit[corev1.Node] {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// parseTaint reads key=value:effect.
func parseTaint(s string) corev1.Taint {
	rest, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

func taintStrings(taints []corev1.Taint) []string {
	var out []string
	for _, t := range taints {
		out = append(out, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	return out
}

// compileAll leaves out rules that are being deleted, as the reader of rules does, and accepts selectors it cannot parse.
func compileAll(rules ...*apiRule) *Rules {
	var compiled []*Rule
	for _, r := range rules {
		if r.DeletionTimestamp == nil {
			c, _ := Compile(r)
			compiled = append(compiled, c)
		}
	}
	return NewRules(compiled...)
}

// carryOut gives the node after a decision was written.
func carryOut(n *corev1.Node, d Decision) *corev1.Node {
	n = n.DeepCopy()
	if d.TaintsChanged {
		n.Spec.Taints = d.Taints
	}
	for key, value := range d.Annotations {
		if value == nil {
			delete(n.Annotations, key)
			continue
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = *value
	}
	return n
}
