package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="DryRun",type=boolean,JSONPath=`.spec.dryRun`,priority=1
// +kubebuilder:printcolumn:name="Spared",type=integer,JSONPath=`.status.nodes.spared`,priority=1
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`,priority=1
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
// +kubebuilder:validation:XValidation:rule="self.enforcementMode != 'bootstrap-only' || !has(self.conditions) || self.conditions.all(c, !has(c.defaultStatus))",message="defaultStatus cannot be used with enforcementMode bootstrap-only"
// +kubebuilder:validation:XValidation:rule="(has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)",message="nodeSelector must not be empty: to select every node, use the matchExpression {key: kubernetes.io/hostname, operator: Exists}"
// +kubebuilder:validation:XValidation:rule="(has(self.conditions) && size(self.conditions) > 0) || (has(self.objects) && size(self.objects) > 0)",message="spec.conditions or spec.objects must name something that a node has to fulfil"
// +kubebuilder:validation:XValidation:rule="self.enforcementMode == 'bootstrap-only' || !has(self.regateOnReboot) || !self.regateOnReboot",message="regateOnReboot can be used with enforcementMode bootstrap-only only: a continuous rule judges a rebooted node anyway"
// +kubebuilder:validation:XValidation:rule="!has(self.taints) || self.taints.all(t, t.key != self.taint.key || t.effect != self.taint.effect)",message="taints must not repeat the key and effect of taint"
type NodeReadinessRuleSpec struct {
	// conditions that a node has to fulfil. They may be left out when objects are given.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []ConditionRequirement `json:"conditions,omitempty"`

	// conditionPolicy says whether all conditions or any one of them must be as required. Empty means allOf.
	// +optional
	ConditionPolicy ConditionPolicy `json:"conditionPolicy,omitempty"`

	// objects that have to be ready too, all of them, whatever conditionPolicy says of the conditions.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Objects []ObjectRequirement `json:"objects,omitempty"`

	// enforcementMode is continuous, or bootstrap-only: once fulfilled on a node, the rule never holds that node again.
	EnforcementMode EnforcementMode `json:"enforcementMode"`

	// taint is held on a selected node while the conditions are not as required.
	Taint TaintSpec `json:"taint"`

	// taints are held together with taint, e.g. the startup taint that a cluster autoscaler knows beside one of our own.
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Taints []TaintSpec `json:"taints,omitempty"`

	// allowEviction acknowledges that a taint with effect NoExecute evicts the pods of a node as soon as the node does not
	// fulfil the rule, past every PodDisruptionBudget. Without it such a taint is held with effect NoSchedule.
	// +optional
	AllowEviction bool `json:"allowEviction,omitempty"`

	// maxTainted bounds how many nodes the rule may hold at once, as a number or a percentage of the nodes it selects,
	// rounded up: a guard against a reporter that is wrong everywhere at once. Further nodes are left as they are, and
	// counted. Nodes that are new, made after the rule was last changed and not judged by it before, are held in any case.
	// Unset: no bound.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="maxTainted must be a number, 0 or more, or a percentage like 10%"
	// +optional
	MaxTainted *intstr.IntOrString `json:"maxTainted,omitempty"`

	// regateOnReboot makes a node that completed a bootstrap-only rule pass it again after every reboot, as told by
	// status.nodeInfo.bootID. A condition with a heartbeat time counts only once its reporter has given a sign of life since
	// the reboot.
	// +optional
	RegateOnReboot bool `json:"regateOnReboot,omitempty"`

	// taintNewNodes puts the taints on nodes when they are created, before they can be scheduled to, where the cluster has
	// the admission policy or webhook of Fettle installed.
	// +optional
	TaintNewNodes bool `json:"taintNewNodes,omitempty"`

	// suspend leaves nodes as they are, taints that the rule holds included, until it is lifted. Unlike dryRun it computes
	// nothing.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

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

	// maxAge is how long the reporter of the condition may show no sign of life before the condition counts as one that
	// the node does not have. A sign is a change of its heartbeat time or its status, timed by the controller's own clock,
	// so it fits reporters that renew the heartbeat only. For the conditions of Fettle's agent a live lease is a sign.
	// Unset: a condition counts for ever.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="maxAge must be at least 1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`

	// for is how long a change must last before it counts.
	// +optional
	For *Hold `json:"for,omitempty"`
}

// Hold says how long a condition must have been one way before that counts, timed by the controller's own clock. A node
// that is new is not waited for: it is held at once.
type Hold struct {
	// adding is how long the condition must not have been as required before the node is held for it. Unset: at once.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="adding must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Adding *metav1.Duration `json:"adding,omitempty"`
	// removing is how long the condition must have been as required before the node is released. Unset: at once.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="removing must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Removing *metav1.Duration `json:"removing,omitempty"`
}

// ObjectRequirement is something beside the node's conditions that has to be ready: exactly one of daemonSet, object and
// allocatable. What is missing or cannot be read is not ready.
//
// +kubebuilder:validation:XValidation:rule="(has(self.daemonSet) ? 1 : 0) + (has(self.object) ? 1 : 0) + (has(self.allocatable) ? 1 : 0) == 1",message="exactly one of daemonSet, object and allocatable must be given"
type ObjectRequirement struct {
	// name tells the requirements of a rule apart.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// daemonSet whose pod on the node must be ready and of the newest revision.
	// +optional
	DaemonSet *DaemonSetOnNode `json:"daemonSet,omitempty"`
	// object that must be ready.
	// +optional
	Object *ReadyObject `json:"object,omitempty"`
	// allocatable resource that the node must offer.
	// +optional
	Allocatable *AllocatableResource `json:"allocatable,omitempty"`
}

// DaemonSetOnNode names a DaemonSet.
type DaemonSetOnNode struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ReadyObject names an object of any kind that the controller may read.
type ReadyObject struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace of the object; empty for one that has none.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the object; $(NODE_NAME) in it stands for the name of the node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// statusHint tightens how the object's status is read, like the annotation fettle.dev/status-hint on the object, and
	// together with it: has-observed-generation, has-ready-condition, conditions=<type>;<type>, separated by commas.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	StatusHint string `json:"statusHint,omitempty"`
}

// AllocatableResource names a resource of the node's status.allocatable.
type AllocatableResource struct {
	// resource, e.g. nvidia.com/gpu.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Resource string `json:"resource"`
	// atLeast is how much of it the node must offer.
	AtLeast resource.Quantity `json:"atLeast"`
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

// NodeReadinessRuleStatus is written by the controller. Its lists are samples: the first by name, at most 100 and fewer
// where names are long, so that a rule stays under 64 KiB in any fleet; nodes has the full counts. Lists of nodes are atomic,
// since the API server's record of who wrote which entry would be larger than they are.
type NodeReadinessRuleStatus struct {
	// observedGeneration is the generation of spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready says that the rule is understood and applied to every selected node; the other types are named,
	// with their reasons, in docs/reference/rules.md.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// unseenConditionTypes are those of spec.conditions that no node of the cluster has or had, as far as the controller
	// that writes this has seen: a sign of a misspelt type, or of a reporter that does not run.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	UnseenConditionTypes []string `json:"unseenConditionTypes,omitempty"`

	// nodes counts the selected nodes. Absent while the rule is suspended.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`

	// appliedNodes are names of selected nodes that the rule was applied to. Absent in a dry run.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	AppliedNodes []string `json:"appliedNodes,omitempty"`

	// failedNodes are selected nodes whose taints could not be written.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	FailedNodes []NodeFailure `json:"failedNodes,omitempty"`

	// nodeEvaluations are the selected nodes that the rule holds.
	// +listType=atomic
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
	// spared nodes do not fulfil the rule and are not held, since spec.maxTainted nodes are.
	// +optional
	Spared int32 `json:"spared,omitempty"`
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
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ConditionResults []ConditionResult `json:"conditionResults"`
	// objectResults has one entry for each required object.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ObjectResults []ObjectResult `json:"objectResults,omitempty"`
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
	// stale is true when the condition is older than maxAge; then it counts as missing.
	// +optional
	Stale bool `json:"stale,omitempty"`
	// pending is true while a change of the condition does not count yet because of for.
	// +optional
	Pending bool `json:"pending,omitempty"`
}

// ObjectResult is one required object.
type ObjectResult struct {
	Name string `json:"name"`
	// ready is Unknown when the object does not exist or cannot be read.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Ready corev1.ConditionStatus `json:"ready"`
	// message says why it is not ready.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
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
	// riskyOperations is the number of selected nodes that lack at least one of the conditions, stale ones included.
	RiskyOperations int32 `json:"riskyOperations"`
	// nodesToTaint are names of nodes that would get a taint.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	NodesToTaint []string `json:"nodesToTaint,omitempty"`
	// nodesToUntaint are names of nodes that would lose a taint.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	NodesToUntaint []string `json:"nodesToUntaint,omitempty"`
	// missingConditions are the condition types that selected nodes lack.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	MissingConditions []MissingCondition `json:"missingConditions,omitempty"`
	// summary in words.
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary"`
}

// MissingCondition is a condition type that nodes lack.
type MissingCondition struct {
	Type string `json:"type"`
	// count of the selected nodes that lack it.
	Count int32 `json:"count"`
	// nodes are some of their names, first by name, at most 10.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Nodes []string `json:"nodes,omitempty"`
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
