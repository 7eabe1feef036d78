package readiness

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of rules. Ready is always there; the others are there only while they are True, and then there is
// something to know.
const (
	ConditionReady                  = "Ready"
	ConditionStalled                = "Stalled"
	ConditionConflict               = "Conflict"
	ConditionEvictionUnacknowledged = "EvictionUnacknowledged"
	ConditionAtBound                = "AtBound"
	ConditionReporterRepelled       = "ReporterRepelled"
	ConditionAutoscalerUnaware      = "AutoscalerUnaware"
)

// Reasons of conditions of rules; Statements has what they say.
const (
	ReasonEnforced          = "Enforced"
	ReasonDryRun            = "DryRun"
	ReasonSuspended         = "Suspended"
	ReasonApplying          = "Applying"
	ReasonWritesFailing     = "WritesFailing"
	ReasonInvalidSelector   = "InvalidSelector"
	ReasonSelectorUnusable  = "SelectorUnusable"
	ReasonTaintShared       = "TaintShared"
	ReasonEvictionWithheld  = "EvictionWithheld"
	ReasonMaxTaintedReached = "MaxTaintedReached"
	ReasonTaintNotTolerated = "TaintNotTolerated"

	ReasonUnknownToAutoscalers       = "TaintUnknownToAutoscalers"
	ReasonUnknownToClusterAutoscaler = "TaintUnknownToClusterAutoscaler"
)

// Statement is what a condition of a rule says with one of its reasons.
type Statement struct {
	Type   string
	Status metav1.ConditionStatus
	// Reason is unique over all types, and never renamed: people and programs match on it.
	Reason string
	// Says is what is the case, as a clause; Do is what a person can do about it.
	Says, Do string
	// Event is the type of the event on the rule, Normal or Warning and with the same reason, when the condition begins to
	// say this; empty for none.
	Event string
}

// Statements are all that conditions of rules say. docs/reference/rules.md is made from them.
var Statements = []Statement{
	{ConditionReady, metav1.ConditionTrue, ReasonEnforced,
		"the taints are on the selected nodes that do not fulfil the rule, and on no others on account of this rule", "nothing", corev1.EventTypeNormal},
	{ConditionReady, metav1.ConditionTrue, ReasonDryRun,
		"nothing is written to nodes; `dryRunResults` say what would be", "set `dryRun: false` when the results are as you want them", corev1.EventTypeNormal},
	{ConditionReady, metav1.ConditionTrue, ReasonSuspended,
		"nodes are left as they are", "set `suspend: false` to go on", corev1.EventTypeNormal},
	{ConditionReady, metav1.ConditionFalse, ReasonApplying,
		"the rule is new, or was edited, and has not reached every selected node yet", "wait; it takes seconds", ""},
	{ConditionReady, metav1.ConditionFalse, ReasonWritesFailing,
		"the taints of some nodes cannot be written", "see `failedNodes` for where and why; it is tried again all the time", corev1.EventTypeWarning},
	{ConditionReady, metav1.ConditionFalse, ReasonInvalidSelector,
		"`nodeSelector` cannot be parsed, and nothing is changed on the rule's account", "correct `nodeSelector`; the message names the fault", corev1.EventTypeWarning},
	{ConditionStalled, metav1.ConditionTrue, ReasonSelectorUnusable,
		"the rule cannot be applied until it is edited", "correct `nodeSelector`", ""},
	{ConditionConflict, metav1.ConditionTrue, ReasonTaintShared,
		"another rule holds a taint of the same key and effect on nodes that both may select", "give each rule a taint key of its own, or selectors that exclude each other; until then the message says which rule decides what", corev1.EventTypeWarning},
	{ConditionEvictionUnacknowledged, metav1.ConditionTrue, ReasonEvictionWithheld,
		"a taint with effect NoExecute is held with NoSchedule, since `allowEviction` is not set", "set `allowEviction: true` if pods are to be evicted, else use effect NoSchedule", corev1.EventTypeWarning},
	{ConditionAtBound, metav1.ConditionTrue, ReasonMaxTaintedReached,
		"nodes that do not fulfil the rule are left as they are, since `maxTainted` nodes are held", "look for what all these nodes have in common, first of all a reporter that is wrong; raise `maxTainted` if the nodes are", corev1.EventTypeWarning},
	{ConditionReporterRepelled, metav1.ConditionTrue, ReasonTaintNotTolerated,
		"pods that the rule waits for do not tolerate its taints, so that a node that is held can stay held for ever", "add a toleration of the taints to the DaemonSet that the message names; if it does not report the conditions, say what it reports by its annotation `fettle.dev/reports-conditions`", corev1.EventTypeWarning},
	{ConditionAutoscalerUnaware, metav1.ConditionTrue, ReasonUnknownToAutoscalers,
		"no autoscaler knows by itself that nodes lose the taints of the rule again; nothing is wrong where there is none, or where it was told", "name the taints to your autoscaler, or add to `taints` one that it knows, e.g. under `startup-taint.cluster-autoscaler.kubernetes.io/`", ""},
	{ConditionAutoscalerUnaware, metav1.ConditionTrue, ReasonUnknownToClusterAutoscaler,
		"Karpenter knows that nodes lose the taints of the rule again, and cluster-autoscaler does not know by itself; nothing is wrong without it, or where it was told", "with cluster-autoscaler, name the taints to it by `--startup-taint`, or add to `taints` one under `startup-taint.cluster-autoscaler.kubernetes.io/`", ""},
}

// statement returns the entry of a reason. Using one that the table lacks is a programming error, which the tests of every
// Check catch; it is answered with a condition of that name.
func statement(reason string) Statement {
	for _, s := range Statements {
		if s.Reason == reason {
			return s
		}
	}
	return Statement{Type: reason, Status: metav1.ConditionTrue, Reason: reason}
}
