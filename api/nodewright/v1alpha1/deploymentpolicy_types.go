package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultCompartment is the compartment of the nodes that no other selects.
const DefaultCompartment = "__default__"

// DeploymentPolicy says how NodeWrights that name it are rolled out: in compartments of nodes, each with a budget and a
// strategy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fettle
type DeploymentPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeploymentPolicySpec `json:"spec"`
}

// DeploymentPolicySpec has the compartments.
type DeploymentPolicySpec struct {
	// default is for the nodes that no compartment selects.
	Default PolicyDefault `json:"default"`

	// compartments of nodes. A node that several select belongs to the one with the safest strategy.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Compartments []Compartment `json:"compartments,omitempty"`

	// resetBatchStateOnCompletion begins with the first batch again once a rollout is complete or its version changed.
	// +kubebuilder:default=true
	// +optional
	ResetBatchStateOnCompletion *bool `json:"resetBatchStateOnCompletion,omitempty"`
}

// PolicyDefault is the budget and the strategy of nodes that no compartment selects.
type PolicyDefault struct {
	Budget   DeploymentBudget   `json:"budget"`
	Strategy DeploymentStrategy `json:"strategy"`
}

// Compartment is a part of the nodes.
type Compartment struct {
	// name of the compartment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != '__default__'",message="the name __default__ is that of the nodes that no compartment selects"
	Name string `json:"name"`
	// selector of nodes.
	Selector metav1.LabelSelector `json:"selector"`
	Budget   DeploymentBudget     `json:"budget"`
	// strategy; unset: batches as large as the budget.
	// +optional
	Strategy *DeploymentStrategy `json:"strategy,omitempty"`
}

// DeploymentBudget bounds how many nodes of a compartment are worked on at once: one of its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.percent) != has(self.count)",message="budget takes either percent or count"
type DeploymentBudget struct {
	// percent of the compartment's nodes, rounded down, at least one node.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// count of nodes.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Count *int32 `json:"count,omitempty"`
}

// DeploymentStrategy says how batches grow: one of its fields.
//
// +kubebuilder:validation:XValidation:rule="(has(self.fixed) ? 1 : 0) + (has(self.linear) ? 1 : 0) + (has(self.exponential) ? 1 : 0) == 1",message="strategy takes exactly one of fixed, linear and exponential"
type DeploymentStrategy struct {
	// fixed : every batch is as large as the first.
	// +optional
	Fixed *FixedStrategy `json:"fixed,omitempty"`
	// linear : every batch is larger than the one before by delta.
	// +optional
	Linear *LinearStrategy `json:"linear,omitempty"`
	// exponential : every batch is growthFactor times the one before.
	// +optional
	Exponential *ExponentialStrategy `json:"exponential,omitempty"`
}

// BatchLimits are common to all strategies.
type BatchLimits struct {
	// initialBatch is the size of the first batch.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +optional
	InitialBatch int32 `json:"initialBatch,omitempty"`
	// batchThreshold is the percentage of a batch's nodes that have to succeed.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	BatchThreshold int32 `json:"batchThreshold,omitempty"`
	// failureThreshold is after how many failed batches in a row the rollout stops. Unset: never.
	// +kubebuilder:validation:Minimum=1
	// +optional
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
	// safetyLimit is the percentage of the nodes up to which failed batches make the next ones smaller.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	SafetyLimit int32 `json:"safetyLimit,omitempty"`
}

// FixedStrategy has batches of one size.
type FixedStrategy struct {
	BatchLimits `json:",inline"`
}

// LinearStrategy has batches that grow by a number.
type LinearStrategy struct {
	BatchLimits `json:",inline"`
	// delta between batches.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +optional
	Delta int32 `json:"delta,omitempty"`
}

// ExponentialStrategy has batches that grow by a factor.
type ExponentialStrategy struct {
	BatchLimits `json:",inline"`
	// growthFactor between batches.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=2
	// +optional
	GrowthFactor int32 `json:"growthFactor,omitempty"`
}

// DeploymentPolicyList is a list of DeploymentPolicies.
//
// +kubebuilder:object:root=true
type DeploymentPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeploymentPolicy `json:"items"`
}
