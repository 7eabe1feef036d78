package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeWright describes work to be done on hosts: which nodes to touch, what to run on them, and how fast.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fettle
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Nodes In-Progress",type=integer,JSONPath=`.status.nodesInProgress`
// +kubebuilder:printcolumn:name="Complete Nodes",type=string,JSONPath=`.status.completeNodes`
// +kubebuilder:printcolumn:name="Packages",type=string,JSONPath=`.status.packageList`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.deploymentPolicy`
type NodeWright struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeWrightSpec   `json:"spec,omitempty"`
	Status NodeWrightStatus `json:"status,omitempty"`
}

// NodeWrightSpec is what is to be done, where, and how fast.
//
// +kubebuilder:validation:XValidation:rule="!has(self.interruptionBudget) || !has(self.deploymentPolicy) || size(self.deploymentPolicy) == 0",message="deploymentPolicy and interruptionBudget exclude each other"
type NodeWrightSpec struct {
	// nodeSelectors selects nodes by label. Empty selects every node of the cluster.
	// +optional
	NodeSelectors metav1.LabelSelector `json:"nodeSelectors,omitempty"`

	// interruptionBudget bounds how many selected nodes are worked on at once. Unset: all of them.
	// +optional
	InterruptionBudget *InterruptionBudget `json:"interruptionBudget,omitempty"`

	// deploymentPolicy is the name of the DeploymentPolicy to roll out by.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	DeploymentPolicy string `json:"deploymentPolicy,omitempty"`

	// deploymentPolicyOptions override settings of the policy for this NodeWright alone.
	// +optional
	DeploymentPolicyOptions *DeploymentPolicyOptions `json:"deploymentPolicyOptions,omitempty"`

	// priority orders NodeWrights; lower ones come first, equal ones by name.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// sequencing says whether the order is kept on each node, or over all nodes: then nothing later begins anywhere before
	// this is complete everywhere.
	// +kubebuilder:default=node
	// +kubebuilder:validation:Enum=node;all
	// +optional
	Sequencing Sequencing `json:"sequencing,omitempty"`

	// serial runs one package at a time on a node.
	// +optional
	Serial bool `json:"serial,omitempty"`

	// podNonInterruptLabels selects pods that have to leave a node by themselves before it is drained. Empty selects none.
	// +optional
	PodNonInterruptLabels metav1.LabelSelector `json:"podNonInterruptLabels,omitempty"`

	// drainConfig tunes how nodes are drained before interrupts.
	// +optional
	DrainConfig *DrainConfig `json:"drainConfig,omitempty"`

	// additionalTolerations are of taints that a node may have and still be worked on.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	AdditionalTolerations []corev1.Toleration `json:"additionalTolerations,omitempty"`

	// runtimeRequired keeps workloads off a node, by the taint it joined with, until this is complete there.
	// +optional
	RuntimeRequired bool `json:"runtimeRequired,omitempty"`

	// runtimeRequiredCordonAfter leaves a node cordoned when that taint goes.
	// +optional
	RuntimeRequiredCordonAfter bool `json:"runtimeRequiredCordonAfter,omitempty"`

	// autoTaintNewNodes has the controller put that taint on new nodes. It has a meaning with runtimeRequired only.
	// +optional
	AutoTaintNewNodes bool `json:"autoTaintNewNodes,omitempty"`

	// packages are the work, by name.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[a-z][-a-z0-9]{0,41}[a-z]$'))",message="names of packages must match ^[a-z][-a-z0-9]{0,41}[a-z]$"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !has(self[name].name) || size(self[name].name) == 0)",message="the name of a package is its key; name must not be set in it"
	// +optional
	Packages map[string]Package `json:"packages,omitempty"`
}

// Sequencing is node or all.
type Sequencing string

const (
	SequencingNode Sequencing = "node"
	SequencingAll  Sequencing = "all"
)

// InterruptionBudget is a part of the selected nodes: one of its fields.
//
// +kubebuilder:validation:XValidation:rule="!has(self.percent) || !has(self.count)",message="interruptionBudget takes percent or count, not both"
type InterruptionBudget struct {
	// percent of the selected nodes, rounded down, at least one node.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// count of nodes.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Count *int32 `json:"count,omitempty"`
}

// DeploymentPolicyOptions override settings of a DeploymentPolicy. What is unset overrides nothing.
type DeploymentPolicyOptions struct {
	// +optional
	ResetBatchStateOnCompletion *bool `json:"resetBatchStateOnCompletion,omitempty"`
}

// DrainConfig tunes drains.
type DrainConfig struct {
	// disableEviction deletes pods instead of evicting them, past their PodDisruptionBudgets.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
	// deleteEmptyDirData lets pods with emptyDir volumes be drained.
	// +kubebuilder:default=true
	// +optional
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`
	// force lets pods without a controller be drained.
	// +kubebuilder:default=true
	// +optional
	Force *bool `json:"force,omitempty"`
	// ignoreDaemonSets leaves pods of DaemonSets alone.
	// +kubebuilder:default=true
	// +optional
	IgnoreDaemonSets *bool `json:"ignoreDaemonSets,omitempty"`
	// timeout bounds the whole drain. Unset or 0: there is none.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="timeout must not be negative"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// gracePeriod overrides that of the pods. Unset: their own.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="gracePeriod must not be negative"
	// +optional
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}

// NodeWrightList is a list of NodeWrights.
//
// +kubebuilder:object:root=true
type NodeWrightList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeWright `json:"items"`
}
