package taints

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// ID is what makes two taints the same taint to Kubernetes: key and effect, not the value.
type ID struct {
	Key    string
	Effect corev1.TaintEffect
}

func (id ID) String() string { return id.Key + ":" + string(id.Effect) }

func idOf(t corev1.Taint) ID { return ID{Key: t.Key, Effect: t.Effect} }

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
}

// Taint is a taint of a rule, as it is held: with effect NoSchedule in place of NoExecute until eviction is acknowledged.
type Taint struct {
	ID
	Value string
}

// Rule is a NodeReadinessRule compiled for deciding many nodes. It is immutable.
type Rule struct {
	UID           types.UID
	Name          string
	Requirements  []readinessv1alpha1.ConditionRequirement
	AnyOf         bool
	Objects       []readinessv1alpha1.ObjectRequirement
	BootstrapOnly bool
	// Regate makes nodes pass a bootstrap-only rule again after a reboot.
	Regate bool
	// Taints are held together: spec.taint first, then spec.taints. No key and effect is in it twice.
	Taints []Taint
	// MaxTainted bounds the nodes held; nil for no bound.
	MaxTainted *intstr.IntOrString
	// TaintNewNodes puts the taints on nodes while they are created; see AtBirth.
	TaintNewNodes bool
	// Frozen rules change nothing: they neither add nor remove, and taints they own stay. Rules in dry run and suspended
	// ones are frozen, and so are rules whose selector cannot be parsed, since nobody can say what they select.
	Frozen bool

	selector labels.Selector
	// markerKey is the Node annotation of its bootstrap marker; oldMarkerKey is where early versions of the node readiness
	// controller had it, with any value.
	markerKey, oldMarkerKey string
	// waits is true for rules with a minimum hold.
	waits bool
	// since is from when on the rule is as it is, by the API server's clock; nil for one that is only tried out, which would be
	// so from now on.
	since *metav1.Time
	// remembers is true for rules that treat nodes that they have judged before differently.
	remembers bool
}

// Compile prepares a rule. A selector that cannot be parsed gives an error and a frozen rule that selects nothing.
func Compile(rule *readinessv1alpha1.NodeReadinessRule) (*Rule, error) {
	spec := rule.Spec
	compiled := &Rule{
		UID:           rule.UID,
		Name:          rule.Name,
		Requirements:  slices.Clone(spec.Conditions),
		AnyOf:         spec.ConditionPolicy == readinessv1alpha1.ConditionPolicyAnyOf,
		Objects:       slices.Clone(spec.Objects),
		BootstrapOnly: spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly,
		Regate:        spec.RegateOnReboot,
		Taints:        compileTaints(spec),
		MaxTainted:    spec.MaxTainted,
		TaintNewNodes: spec.TaintNewNodes,
		Frozen:        spec.DryRun || spec.Suspend,
		since:         since(rule),
		remembers:     spec.MaxTainted != nil,
		markerKey:     readinessv1alpha1.BootstrapMarkerPrefix + string(rule.UID),
		oldMarkerKey:  readinessv1alpha1.BootstrapMarkerPrefix + rule.Name,
	}
	for _, required := range spec.Conditions {
		if required.For != nil {
			compiled.waits = true
			compiled.remembers = compiled.remembers || required.For.Adding != nil && required.For.Adding.Duration > 0
		}
	}
	selector, err := compileSelector(spec.NodeSelector)
	if err != nil {
		compiled.Frozen, compiled.selector = true, labels.Nothing()
		return compiled, fmt.Errorf("nodeSelector of rule %s: %w", rule.Name, err)
	}
	compiled.selector = selector
	return compiled, nil
}

// since is when a rule was written last: what else than its status was written is not told apart, and that errs on the side
// of the bound.
func since(rule *readinessv1alpha1.NodeReadinessRule) *metav1.Time {
	last := rule.CreationTimestamp
	for _, written := range rule.ManagedFields {
		if written.Subresource == "" && last.Before(written.Time) {
			last = *written.Time
		}
	}
	return &last
}

func compileTaints(spec readinessv1alpha1.NodeReadinessRuleSpec) []Taint {
	var out []Taint
	for _, t := range append([]readinessv1alpha1.TaintSpec{spec.Taint}, spec.Taints...) {
		taint := Taint{ID: ID{Key: t.Key, Effect: t.Effect}, Value: t.Value}
		if taint.Effect == corev1.TaintEffectNoExecute && !spec.AllowEviction {
			taint.Effect = corev1.TaintEffectNoSchedule
		}
		if !slices.ContainsFunc(out, func(o Taint) bool { return o.ID == taint.ID }) {
			out = append(out, taint)
		}
	}
	return out
}

func compileSelector(from readinessv1alpha1.NodeSelector) (labels.Selector, error) {
	selector := metav1.LabelSelector{MatchLabels: make(map[string]string, len(from.MatchLabels))}
	for key, value := range from.MatchLabels {
		selector.MatchLabels[key] = string(value)
	}
	for _, e := range from.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement(e))
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// Selects reports whether the rule is about the node.
func (r *Rule) Selects(node *corev1.Node) bool {
	return r.selector.Matches(labels.Set(node.Labels))
}

// Tainted reports whether all taints of the rule are on the node, whoever put them there.
func (r *Rule) Tainted(node *corev1.Node) bool {
	for _, t := range r.Taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(on corev1.Taint) bool { return idOf(on) == t.ID }) {
			return false
		}
	}
	return true
}

// value is that of one of the rule's taints.
func (r *Rule) value(id ID) string {
	return r.Taints[slices.IndexFunc(r.Taints, func(t Taint) bool { return t.ID == id })].Value
}

// holds reports whether the node shows that the rule holds it, or has taints of somebody else's that the rule may adopt.
// What other rules hold tells nothing of this one.
func (r *Rule) holds(node *corev1.Node) bool {
	record := ReadRecord(node)
	if record.Names(r.UID) {
		return true
	}
	owned := slices.ContainsFunc(r.Taints, func(t Taint) bool { return len(record[t.ID]) > 0 })
	return !owned && r.Tainted(node)
}

// knows reports whether the rule has judged the node before; one that was rebooted and has to pass again is new to it.
// Rules that treat such nodes like any other know all.
func (r *Rule) knows(node *corev1.Node) bool {
	if !r.remembers {
		return true
	}
	return !r.anew(node) && slices.Contains(readJudged(node), r.UID)
}

// anew : the node has passed the rule, and has to pass it again since it was rebooted.
func (r *Rule) anew(node *corev1.Node) bool {
	m, there := r.marked(node)
	return there && r.rebooted(node, m)
}

// found reports whether the rule, as it is, came to a node that was there before it, rather than the node to the rule.
func (r *Rule) found(node *corev1.Node) bool {
	return !r.anew(node) && (r.since == nil || !node.CreationTimestamp.After(r.since.Time))
}
