package taints

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

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

// Rule is a NodeReadinessRule compiled for deciding many nodes. It is immutable.
type Rule struct {
	UID           types.UID
	Name          string
	Requirements  []readinessv1alpha1.ConditionRequirement
	AnyOf         bool
	BootstrapOnly bool
	Taint         ID
	Value         string
	// Frozen rules change nothing: they neither add nor remove, and taints they own stay. Rules in dry run are frozen,
	// and so are rules whose selector cannot be parsed, since nobody can say what they select.
	Frozen bool

	selector labels.Selector
}

// Compile prepares a rule. A selector that cannot be parsed gives an error and a frozen rule that selects nothing.
func Compile(rule *readinessv1alpha1.NodeReadinessRule) (*Rule, error) {
	spec := rule.Spec
	compiled := &Rule{
		UID:           rule.UID,
		Name:          rule.Name,
		Requirements:  slices.Clone(spec.Conditions),
		AnyOf:         spec.ConditionPolicy == readinessv1alpha1.ConditionPolicyAnyOf,
		BootstrapOnly: spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly,
		Taint:         ID{Key: spec.Taint.Key, Effect: spec.Taint.Effect},
		Value:         spec.Taint.Value,
		Frozen:        spec.DryRun,
	}
	selector, err := compileSelector(spec.NodeSelector)
	if err != nil {
		compiled.Frozen, compiled.selector = true, labels.Nothing()
		return compiled, fmt.Errorf("nodeSelector of rule %s: %w", rule.Name, err)
	}
	compiled.selector = selector
	return compiled, nil
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

// MarkerKey is the Node annotation that records that this rule's bootstrap is done.
func (r *Rule) MarkerKey() string {
	return readinessv1alpha1.BootstrapMarkerPrefix + string(r.UID)
}

// Completed reports whether the node passed this bootstrap-only rule before.
func (r *Rule) Completed(node *corev1.Node) bool {
	if !r.BootstrapOnly {
		return false
	}
	_, done := node.Annotations[r.MarkerKey()]
	return done
}

// Rules is an immutable set of compiled rules, ordered by name. Rules that do not exist or are being deleted are not in
// it: what they own is removed.
type Rules struct {
	byName []*Rule
	byUID  map[types.UID]*Rule
}

// NewRules makes a set of the rules given.
func NewRules(rules ...*Rule) *Rules {
	set := &Rules{byName: slices.Clone(rules), byUID: make(map[types.UID]*Rule, len(rules))}
	slices.SortFunc(set.byName, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, r := range set.byName {
		set.byUID[r.UID] = r
	}
	return set
}

// All returns the rules by name. The slice must not be changed.
func (s *Rules) All() []*Rule { return s.byName }

// Get returns the rule with that UID, or nil.
func (s *Rules) Get(uid types.UID) *Rule { return s.byUID[uid] }

// Enforcing returns the same set with one rule enforced, whatever its dryRun says: the "what if" of a dry run.
func (s *Rules) Enforcing(uid types.UID) *Rules {
	rules := slices.Clone(s.byName)
	for i, r := range rules {
		if r.UID == uid {
			live := *r
			live.Frozen = false
			rules[i] = &live
		}
	}
	return NewRules(rules...)
}
