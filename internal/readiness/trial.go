package readiness

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// trial is what a rule in dry run would do to a node.
type trial struct {
	adds, removes uint8
	// bounded is true for a node that the rule would hold only while there is room within maxTainted.
	bounded bool
	// lacks has a bit for each of the rule's conditions, in order, that the node does not have.
	lacks uint32
}

// try finds out how a node would stand with a rule in dry run, by deciding it twice: as things are, and with the rule
// enforced. concerns is false for a node that the rule neither selects nor has a taint on from before.
func (j Judgement) try(rule *taints.Rule, is, enforced *taints.Rules, seen taints.Seen) (st standing, concerns bool) {
	selects := rule.Selects(j.Node)
	if !selects && !taints.ReadRecord(j.Node).Names(rule.UID) {
		return standing{}, false
	}
	seen.MayHold = nil
	would := taints.Decide(j.Node, enforced, seen)
	has := taints.Decide(j.Node, is, seen).Taints
	st.trial = trial{adds: without(would.Taints, has), removes: without(has, would.Taints)}
	if !selects {
		return st, true
	}
	st.outcome = j.outcome(rule, would, seen)
	if rule.MaxTainted != nil {
		seen.MayHold = func(*taints.Rule) bool { return false }
		st.trial.bounded = slices.Contains(taints.Decide(j.Node, enforced, seen).Spared, rule.UID)
	}
	for i, result := range rule.Results(j.Node, seen) {
		if result.Missing || result.Stale {
			st.trial.lacks |= 1 << i
		}
	}
	return st, true
}

// without counts the taints of a that b lacks, by key and effect.
func without(a, b []corev1.Taint) (count uint8) {
	for _, t := range a {
		if !slices.ContainsFunc(b, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			count++
		}
	}
	return count
}

// within gives the view of a rule in dry run with the nodes spared that it would spare: the last by name of those that are
// bounded, as far as maxTainted has no room for them beside what is held already.
func (v view) within(maxTainted intstr.IntOrString) view {
	room, err := intstr.GetScaledValueFromIntOrPercent(&maxTainted, int(v.counts.Selected), true)
	if err != nil { // the API server takes no other text
		return v
	}
	for _, n := range v.nodes {
		if n.outcome == held && n.trial.adds == 0 {
			room--
		}
	}
	v.nodes = slices.Clone(v.nodes)
	for i := range v.nodes {
		n := &v.nodes[i]
		switch {
		case !n.trial.bounded:
		case room > 0:
			room--
		default:
			n.outcome, n.trial.adds = spared, 0
			v.counts.Held, v.counts.Spared = v.counts.Held-1, v.counts.Spared+1
		}
	}
	return v
}

// dryRunResults sum up what a rule in dry run would do to nodes, which are by name.
func dryRunResults(required []readinessv1alpha1.ConditionRequirement, nodes []entry, within bounds) *readinessv1alpha1.DryRunResults {
	var results readinessv1alpha1.DryRunResults
	var adds, removes []string
	lacking := make([][]string, len(required))
	for _, n := range nodes {
		if n.trial.adds > 0 {
			adds = append(adds, n.name)
		}
		if n.trial.removes > 0 {
			removes = append(removes, n.name)
		}
		if n.trial.adds > 0 || n.trial.removes > 0 {
			results.AffectedNodes++
		}
		results.TaintsToAdd += int32(n.trial.adds)
		results.TaintsToRemove += int32(n.trial.removes)
		if n.trial.lacks != 0 {
			results.RiskyOperations++
		}
		for i := range required {
			if n.trial.lacks&(1<<i) != 0 {
				lacking[i] = append(lacking[i], n.name)
			}
		}
	}
	results.NodesToTaint = fitting(adds, room{maxNodes, within.trial})
	results.NodesToUntaint = fitting(removes, room{maxNodes, within.trial})
	space := room{len(required), within.missing}
	for i, names := range lacking {
		if len(names) == 0 {
			continue
		}
		missing := readinessv1alpha1.MissingCondition{Type: required[i].Type, Count: int32(len(names)), Nodes: names[:min(len(names), maxNamed)]}
		if space.takes(missing) {
			results.MissingConditions = append(results.MissingConditions, missing)
		}
	}
	results.Summary = capped(summary(adds, removes, required, lacking), maxSummary)
	return &results
}

func summary(adds, removes []string, required []readinessv1alpha1.ConditionRequirement, lacking [][]string) string {
	var says []string
	if len(adds) > 0 {
		says = append(says, fmt.Sprintf("would taint %d: %s", len(adds), named(adds, len(adds))))
	}
	if len(removes) > 0 {
		says = append(says, fmt.Sprintf("would untaint %d: %s", len(removes), named(removes, len(removes))))
	}
	if len(says) == 0 {
		says = append(says, "would change no node")
	}
	for i, names := range lacking {
		if len(names) > 0 {
			says = append(says, fmt.Sprintf("%s is missing on %d: %s", required[i].Type, len(names), named(names, len(names))))
		}
	}
	return strings.Join(says, "; ")
}
