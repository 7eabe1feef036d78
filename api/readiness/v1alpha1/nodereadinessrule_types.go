package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReadinessRule keeps a taint on the nodes it selects while their conditions are not as required.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nrr,categories=fettle
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.enforcementMode`
// +kubebuilder:printcolumn:name="Taint",type=string,JSONPath=`.spec.taint.key`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.taint.effect`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.nodes.ready`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.nodes.held`
// +kubebuilder:printcolumn:name="DryRun",type=boolean,JSONPath=`.spec.dryRun`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.enforcementMode`
// +kubebuilder:selectablefield:JSONPath=`.spec.taint.key`
// +kubebuilder:selectablefield:JSONPath=`.spec.dryRun`
type NodeReadinessRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeReadinessRuleSpec   `json:"spec"`
	Status NodeReadinessRuleStatus `json:"status,omitempty"`
}

// NodeReadinessRuleSpec may be edited at any time; taints follow.
//
// +kubebuilder:validation:XValidation:rule="self.enforcementMode != 'bootstrap-only' || !has(self.conditionPolicy) || self.conditionPolicy != 'anyOf'",message="conditionPolicy anyOf cannot be used with enforcementMode bootstrap-only"
// +kubebuilder:validation:XValidation:rule="self.enforcementMode != 'bootstrap-only' || self.conditions.all(c, !has(c.defaultStatus))",message="defaultStatus cannot be used with enforcementMode bootstrap-only"
// +kubebuilder:validation:XValidation:rule="(has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)",message="nodeSelector must not be empty: to select every node, use the matchExpression {key: kubernetes.io/hostname, operator: Exists}"
type NodeReadinessRuleSpec struct {
	// conditions that a node has to fulfil.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Conditions []ConditionRequirement `json:"conditions"`

	// conditionPolicy says whether all conditions or any one of them must be as required. Empty means allOf.
	// +optional
	ConditionPolicy ConditionPolicy `json:"conditionPolicy,omitempty"`

	// enforcementMode is continuous, or bootstrap-only: once fulfilled on a node, the rule never holds that node again.
	EnforcementMode EnforcementMode `json:"enforcementMode"`

	// taint is held on a selected node while the conditions are not as required.
	Taint TaintSpec `json:"taint"`

	// nodeSelector selects the nodes that the rule applies to. It must not be empty.
	NodeSelector NodeSelector `json:"nodeSelector"`

	// dryRun computes what the rule would do, shows it in status.dryRunResults, and leaves nodes as they are, taints
	// that the rule holds included.
	// +kubebuilder:default=false
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// NodeSelector selects nodes by label. It has the shape of a metav1.LabelSelector, with the schema's help against
// selectors that can never be parsed.
//
// +structType=atomic
type NodeSelector struct {
	// matchLabels must all be on the node, with these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317 && key.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys of matchLabels must be label keys"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
	// matchExpressions must all hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []NodeSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// NodeSelectorRequirement is one expression of a NodeSelector.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="values must be given with operators In and NotIn, and only with them"
type NodeSelectorRequirement struct {
	// key is a label key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`
	// operator relates the label's value to values.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// values are label values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	Values []string `json:"values,omitempty"`
}

// ConditionRequirement names a condition type and the status it must have.
type ConditionRequirement struct {
	// type of the Node condition.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`

	// requiredStatus is the status that fulfils the requirement.
	// +kubebuilder:validation:Enum=True;False;Unknown
	RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`

	// defaultStatus stands in for a condition that the node does not have. Unset means Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +optional
	DefaultStatus corev1.ConditionStatus `json:"defaultStatus,omitempty"`
}

// TaintSpec is a taint.
//
// +kubebuilder:validation:XValidation:rule="!self.key.startsWith('node.kubernetes.io/') && !self.key.startsWith('node-role.kubernetes.io/') && !self.key.startsWith('node.cloudprovider.kubernetes.io/')",message="taint keys under node.kubernetes.io/, node-role.kubernetes.io/ and node.cloudprovider.kubernetes.io/ belong to Kubernetes"
type TaintSpec struct {
	// key of the taint, with a prefix, e.g. readiness.k8s.io/network.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.split('/').size() == 2",message="taint key must have exactly one '/' separator between prefix and name"
	// +kubebuilder:validation:XValidation:rule="self.split('/').size() != 2 || (size(self.split('/')[1]) >= 1 && size(self.split('/')[1]) <= 63)",message="the name part of the taint key must be 1-63 characters"
	// +kubebuilder:validation:XValidation:rule="self.split('/').size() != 2 || self.split('/')[1].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="the name part of the taint key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
	// +kubebuilder:validation:XValidation:rule="self.split('/').size() != 2 || (size(self.split('/')[0]) <= 253 && self.split('/')[0].matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="the prefix of the taint key must be a DNS subdomain"
	Key string `json:"key"`

	// value of the taint.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	// +optional
	Value string `json:"value,omitempty"`

	// timeAdded is accepted, since existing manifests may have it, and ignored: the time is when the taint is added.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`

	// effect on pods that do not tolerate the taint. NoExecute also evicts running pods.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// ConditionPolicy is allOf or anyOf.
// +kubebuilder:validation:Enum=allOf;anyOf
type ConditionPolicy string

// EnforcementMode is bootstrap-only or continuous.
// +kubebuilder:validation:Enum=bootstrap-only;continuous
type EnforcementMode string

const (
	ConditionPolicyAllOf ConditionPolicy = "allOf"
	ConditionPolicyAnyOf ConditionPolicy = "anyOf"

	EnforcementModeBootstrapOnly EnforcementMode = "bootstrap-only"
	EnforcementModeContinuous    EnforcementMode = "continuous"
)

// NodeReadinessRuleStatus is written by the controller. Its lists are samples of at most 100 nodes; nodes has the full
// counts.
type NodeReadinessRuleStatus struct {
	// observedGeneration is the generation of spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions has one type, Ready: the rule is understood and applied to every selected node.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the selected nodes.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`

	// appliedNodes are names of selected nodes that the rule was applied to: first by name, at most 100.
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +optional
	AppliedNodes []string `json:"appliedNodes,omitempty"`

	// failedNodes are selected nodes whose taints could not be written, at most 100.
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=100
	// +optional
	FailedNodes []NodeFailure `json:"failedNodes,omitempty"`

	// nodeEvaluations are the selected nodes that the rule holds, first by name, at most 100.
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=100
	// +optional
	NodeEvaluations []NodeEvaluation `json:"nodeEvaluations,omitempty"`

	// dryRunResults say what the rule would do now. Present only while spec.dryRun is set.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`
}

// NodeCounts counts the nodes that a rule selects.
type NodeCounts struct {
	// selected by spec.nodeSelector.
	Selected int32 `json:"selected"`
	// ready nodes fulfil the conditions, or have completed their bootstrap.
	Ready int32 `json:"ready"`
	// held nodes do not, and carry the taint (or would, in a dry run).
	Held int32 `json:"held"`
	// failed nodes could not be written to.
	Failed int32 `json:"failed"`
}

// NodeFailure is a node whose taints could not be written.
type NodeFailure struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// lastEvaluationTime is when the write failed last.
	LastEvaluationTime metav1.Time `json:"lastEvaluationTime"`
}

// NodeEvaluation is a rule's judgement of one node.
type NodeEvaluation struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// conditionResults has one entry for each required condition.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	ConditionResults []ConditionResult `json:"conditionResults"`
	// taintStatus says whether the rule's taint is on the node.
	// +kubebuilder:validation:Enum=Present;Absent
	TaintStatus TaintStatus `json:"taintStatus"`
	// lastEvaluationTime is when this judgement last changed.
	LastEvaluationTime metav1.Time `json:"lastEvaluationTime"`
}

// ConditionResult is one condition of a node beside what the rule requires of it.
type ConditionResult struct {
	Type string `json:"type"`
	// currentStatus is Unknown for a condition that the node does not have; missing tells the two apart.
	// +kubebuilder:validation:Enum=True;False;Unknown
	CurrentStatus corev1.ConditionStatus `json:"currentStatus"`
	// +kubebuilder:validation:Enum=True;False;Unknown
	RequiredStatus corev1.ConditionStatus `json:"requiredStatus"`
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +optional
	DefaultStatus corev1.ConditionStatus `json:"defaultStatus,omitempty"`
	// missing is true when the node has no condition of this type.
	// +optional
	Missing bool `json:"missing,omitempty"`
}

// TaintStatus is Present or Absent.
type TaintStatus string

const (
	TaintPresent TaintStatus = "Present"
	TaintAbsent  TaintStatus = "Absent"
)

// DryRunResults say what a rule would do, computed live.
type DryRunResults struct {
	// affectedNodes is the number of selected nodes whose taints would change.
	AffectedNodes  int32 `json:"affectedNodes"`
	TaintsToAdd    int32 `json:"taintsToAdd"`
	TaintsToRemove int32 `json:"taintsToRemove"`
	// riskyOperations is the number of selected nodes that lack at least one of the conditions.
	RiskyOperations int32 `json:"riskyOperations"`
	// summary in words.
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary"`
}

// NodeReadinessRuleList is a list of NodeReadinessRules.
//
// +kubebuilder:object:root=true
type NodeReadinessRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeReadinessRule `json:"items"`
}

// BootstrapMarkerPrefix begins the Node annotation that records a completed bootstrap-only rule; the rule's UID follows.
const BootstrapMarkerPrefix = "readiness.k8s.io/bootstrap-completed-"
