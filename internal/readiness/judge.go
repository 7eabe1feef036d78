package readiness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Bounds of what a status says; the CRD has the same.
const (
	maxNodes          = 100
	maxFailureMessage = 1024
	maxSummary        = 4096
	// Bounds of the lists in bytes, so that a rule stays well under 64 KiB whatever nodes and conditions are called.
	maxAppliedBytes, maxFailedBytes, maxEvaluationBytes = 14 << 10, 12 << 10, 24 << 10
	// maxNamed bounds the nodes that a summary names for each thing it says.
	maxNamed = 10
)

// subject is a rule and what is needed to judge it.
type subject struct {
	api      *readinessv1alpha1.NodeReadinessRule
	compiled *taints.Rule
	fault    error // of compiling
	rules    *taints.Rules
	// was is the status as last written.
	was      readinessv1alpha1.NodeReadinessRuleStatus
	failures *Failures
	memory   *Memory
}

// judge computes the status of a rule from all nodes, sorted by name. Times in it change only with what they are about.
func (s subject) judge(nodes []*corev1.Node, now time.Time) readinessv1alpha1.NodeReadinessRuleStatus {
	status := readinessv1alpha1.NodeReadinessRuleStatus{
		ObservedGeneration: s.api.Generation,
		Nodes:              &readinessv1alpha1.NodeCounts{},
		Conditions:         slices.Clone(s.was.Conditions),
	}
	preview := newPreview(s, now)
	applied := int32(0)
	appliedRoom, failedRoom, evaluationRoom := room{maxNodes, maxAppliedBytes}, room{maxNodes, maxFailedBytes}, room{maxNodes, maxEvaluationBytes}
	for _, node := range nodes {
		if !s.compiled.Selects(node) {
			preview.left(node)
			continue
		}
		status.Nodes.Selected++
		failure, failed := s.failures.of(node.Name, s.compiled.UID)
		if failed {
			status.Nodes.Failed++
			if f := s.failedNode(node.Name, failure); failedRoom.takes(f) {
				status.FailedNodes = append(status.FailedNodes, f)
			}
		}
		held := !s.compiled.Completed(node) && !s.compiled.Fulfilled(node, s.memory.View(node, now))
		if held {
			status.Nodes.Held++
			if !evaluationRoom.full() {
				if e := s.evaluation(node, now); evaluationRoom.takes(e) {
					status.NodeEvaluations = append(status.NodeEvaluations, e)
				}
			}
		} else {
			status.Nodes.Ready++
		}
		if !s.api.Spec.DryRun && !failed && s.applied(node, held) {
			applied++
			if appliedRoom.takes(node.Name) {
				status.AppliedNodes = append(status.AppliedNodes, node.Name)
			}
		}
		preview.selected(node)
	}
	status.DryRunResults = preview.results()
	apimeta.SetStatusCondition(&status.Conditions, s.ready(status.Nodes, applied, now))
	return status
}

// applied reports whether the node is as this rule wants it: held and owned by the rule, or not owned by it.
func (s subject) applied(node *corev1.Node, held bool) bool {
	return taints.ReadRecord(node).Names(s.compiled.UID) == held && (!held || s.compiled.Tainted(node))
}

func (s subject) evaluation(node *corev1.Node, now time.Time) readinessv1alpha1.NodeEvaluation {
	e := readinessv1alpha1.NodeEvaluation{
		NodeName:           node.Name,
		ConditionResults:   s.compiled.Results(node, s.memory.View(node, now)),
		TaintStatus:        readinessv1alpha1.TaintAbsent,
		LastEvaluationTime: metav1.Time{Time: now.Truncate(time.Second)},
	}
	if s.compiled.Tainted(node) {
		e.TaintStatus = readinessv1alpha1.TaintPresent
	}
	for _, was := range s.was.NodeEvaluations {
		if was.NodeName == e.NodeName && was.TaintStatus == e.TaintStatus && slices.Equal(was.ConditionResults, e.ConditionResults) {
			e.LastEvaluationTime = was.LastEvaluationTime
		}
	}
	return e
}

func (s subject) failedNode(name string, f Failure) readinessv1alpha1.NodeFailure {
	n := readinessv1alpha1.NodeFailure{NodeName: name, Reason: f.Reason, Message: f.Message, LastEvaluationTime: metav1.Time{Time: f.At.Truncate(time.Second)}}
	for _, was := range s.was.FailedNodes {
		if was.NodeName == name && was.Reason == n.Reason && was.Message == n.Message {
			n.LastEvaluationTime = was.LastEvaluationTime
		}
	}
	return n
}

func (s subject) ready(counts *readinessv1alpha1.NodeCounts, applied int32, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: s.api.Generation,
		LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	}
	was := apimeta.FindStatusCondition(s.was.Conditions, ConditionReady)
	settled := was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == s.api.Generation
	no := func(reason, message string) { c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message }
	switch {
	case s.fault != nil:
		no(ReasonInvalidSelector, capped(s.fault.Error(), maxFailureMessage))
	case s.api.Spec.DryRun:
		c.Reason, c.Message = ReasonDryRun, "nothing is written to nodes; dryRunResults say what would be"
	case counts.Failed > 0:
		no(ReasonWritesFailing, "the taints of some nodes could not be written; see failedNodes")
	case applied < counts.Selected && !settled:
		no(ReasonApplying, "some selected nodes have not been dealt with yet")
	default:
		c.Reason, c.Message = ReasonEnforced, "the taint is on the selected nodes that do not fulfil the conditions, and on no others on account of this rule"
	}
	return c
}

// room is what is left of a list.
type room struct{ entries, bytes int }

func (r *room) full() bool { return r.entries <= 0 || r.bytes <= 0 }

// takes reports whether there is room for an entry, and takes it up. The first that does not fit closes the list, so that
// it is always the beginning of the whole.
func (r *room) takes(entry any) bool {
	if r.full() {
		return false
	}
	encoded, err := json.Marshal(entry)
	if err != nil { // plain data: cannot happen
		panic(err)
	}
	r.entries, r.bytes = r.entries-1, r.bytes-len(encoded)-1
	return r.bytes >= 0
}

func capped(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const more = " …"
	return strings.ToValidUTF8(s[:limit-len(more)], "") + more
}

// listed writes the first names of a list, and how many more there are.
func listed(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
