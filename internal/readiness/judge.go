package readiness

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// subject is a rule and what is needed to write its status.
type subject struct {
	// api has the status as last written.
	api      *readinessv1alpha1.NodeReadinessRule
	compiled *taints.Rule
	fault    error // of compiling
	view     view
	// unseen are condition types that no node has or had.
	unseen   []string
	findings []Finding
	// failure is why a node of the view failed.
	failure func(node string) *Failure
	// look gives a node of the view and what is known of it; nil for one that is gone.
	look func(node string) (*corev1.Node, taints.Seen)
}

// judge computes the status of a rule. Times in it change only with what they are about.
func (s subject) judge(now time.Time) readinessv1alpha1.NodeReadinessRuleStatus {
	now = now.Truncate(time.Second)
	if bound := s.api.Spec.MaxTainted; bound != nil && s.api.Spec.DryRun {
		s.view = s.view.within(*bound)
	}
	status := readinessv1alpha1.NodeReadinessRuleStatus{
		ObservedGeneration: s.api.Generation,
		Conditions:         s.conditions(now),
	}
	if s.api.Spec.Suspend || s.fault != nil {
		return status
	}
	counts, space := s.view.counts, boundsFor(s.api.Spec)
	status.Nodes = &counts
	status.UnseenConditionTypes = fitting(s.unseen, room{len(s.unseen), space.unseen})
	status.FailedNodes = s.failed(now, room{maxNodes, space.failed})
	status.NodeEvaluations = s.evaluations(now, room{maxNodes, space.evaluations})
	if s.api.Spec.DryRun {
		status.DryRunResults = dryRunResults(s.api.Spec.Conditions, s.view.nodes, space)
	} else {
		status.AppliedNodes = s.applied(room{maxNodes, space.applied})
	}
	return status
}

// applied are nodes that are as the rule wants them.
func (s subject) applied(space room) []string {
	var names []string
	for _, n := range s.view.nodes {
		if n.failed {
			continue
		}
		if !space.takes(n.name) {
			break
		}
		names = append(names, n.name)
	}
	return names
}

func (s subject) failed(now time.Time, space room) []readinessv1alpha1.NodeFailure {
	if s.view.counts.Failed == 0 {
		return nil
	}
	was := byName(s.api.Status.FailedNodes, func(f readinessv1alpha1.NodeFailure) string { return f.NodeName })
	var list []readinessv1alpha1.NodeFailure
	for _, n := range s.view.nodes {
		failure := (*Failure)(nil)
		if n.failed {
			failure = s.failure(n.name)
		}
		if failure == nil {
			continue
		}
		f := readinessv1alpha1.NodeFailure{NodeName: n.name, Reason: failure.Reason, Message: failure.Message, LastEvaluationTime: metav1.Time{Time: now}}
		if w, there := was[n.name]; there && w.Reason == f.Reason && w.Message == f.Message {
			f.LastEvaluationTime = w.LastEvaluationTime
		}
		if !space.takes(f) {
			break
		}
		list = append(list, f)
	}
	return list
}

func (s subject) evaluations(now time.Time, space room) []readinessv1alpha1.NodeEvaluation {
	if s.view.counts.Held == 0 {
		return nil
	}
	was := byName(s.api.Status.NodeEvaluations, func(e readinessv1alpha1.NodeEvaluation) string { return e.NodeName })
	var list []readinessv1alpha1.NodeEvaluation
	for _, n := range s.view.nodes {
		if n.outcome != held {
			continue
		}
		node, seen := s.look(n.name)
		if node == nil {
			continue
		}
		e := s.evaluation(node, seen)
		e.LastEvaluationTime = metav1.Time{Time: now}
		if w, there := was[n.name]; there && w.TaintStatus == e.TaintStatus &&
			slices.Equal(w.ConditionResults, e.ConditionResults) && slices.Equal(w.ObjectResults, e.ObjectResults) {
			e.LastEvaluationTime = w.LastEvaluationTime
		}
		if !space.takes(e) {
			break
		}
		list = append(list, e)
	}
	return list
}

func (s subject) evaluation(node *corev1.Node, seen taints.Seen) readinessv1alpha1.NodeEvaluation {
	e := readinessv1alpha1.NodeEvaluation{
		NodeName:         node.Name,
		ConditionResults: s.compiled.Results(node, seen),
		ObjectResults:    s.compiled.ObjectResults(node, seen),
		TaintStatus:      readinessv1alpha1.TaintAbsent,
	}
	for i := range e.ObjectResults {
		e.ObjectResults[i].Message = capped(e.ObjectResults[i].Message, maxObjectMessage)
	}
	if s.compiled.Tainted(node) {
		e.TaintStatus = readinessv1alpha1.TaintPresent
	}
	return e
}

// conditions are those of the rule: Ready, and whatever else there is to say; the first finding of a type says it. What is
// no longer said is left out.
func (s subject) conditions(now time.Time) []metav1.Condition {
	var conditions []metav1.Condition
	for _, f := range append([]Finding{s.ready()}, s.others()...) {
		says := statement(f.Reason)
		if apimeta.FindStatusCondition(conditions, says.Type) != nil {
			continue
		}
		c := metav1.Condition{
			Type: says.Type, Status: says.Status, Reason: says.Reason, Message: capped(f.Message, maxStatementLength),
			ObservedGeneration: s.api.Generation, LastTransitionTime: metav1.Time{Time: now},
		}
		if was := apimeta.FindStatusCondition(s.api.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		conditions = append(conditions, c)
	}
	return conditions
}

func (s subject) ready() Finding {
	counts := s.view.counts
	switch {
	case s.fault != nil:
		return Finding{ReasonInvalidSelector, s.fault.Error()}
	case s.api.Spec.Suspend:
		return Finding{ReasonSuspended, "nodes are left as they are"}
	case !s.view.complete:
		return Finding{ReasonApplying, "the rule has not reached every node yet"}
	case s.api.Spec.DryRun:
		return Finding{ReasonDryRun, "nothing is written to nodes; dryRunResults say what would be"}
	case counts.Failed > 0:
		return Finding{ReasonWritesFailing, "the taints of " + s.names(counts.Failed, func(n entry) bool { return n.failed }) + " cannot be written; see failedNodes"}
	}
	return Finding{ReasonEnforced, "the taints are on the selected nodes that do not fulfil the rule, and on no others on account of this rule"}
}

// others are what there is to say beside Ready.
func (s subject) others() []Finding {
	findings := slices.Clone(s.findings)
	if s.fault != nil {
		findings = append(findings, Finding{ReasonSelectorUnusable, "nothing is changed on the rule's account until its nodeSelector is corrected"})
	}
	if count := s.view.counts.Spared; count > 0 && !s.api.Spec.Suspend {
		findings = append(findings, Finding{ReasonMaxTaintedReached, fmt.Sprintf("held: %d of %s, and maxTainted is %s; not ready and spared: %s",
			s.view.counts.Held, countedNodes(int(s.view.counts.Selected)), s.api.Spec.MaxTainted, s.names(count, func(n entry) bool { return n.outcome == spared }))})
	}
	return findings
}

// names says how many nodes there are of a kind, and the first names.
func (s subject) names(count int32, which func(entry) bool) string {
	var names []string
	for _, n := range s.view.nodes {
		if len(names) == maxNamed {
			break
		}
		if which(n) {
			names = append(names, n.name)
		}
	}
	return countedNodes(int(count)) + " (" + named(names, int(count)) + ")"
}

func byName[E any](list []E, name func(E) string) map[string]E {
	out := make(map[string]E, len(list))
	for _, e := range list {
		out[name(e)] = e
	}
	return out
}
