package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FleetPolicyName is the name of the only FleetPolicy that there may be.
const FleetPolicyName = "default"

// FleetPolicy says what may be done to the machines of a cluster at once. There is one, named default; without it, defaults
// hold, and the verdict on the fleet is seen in metrics, events and the controller's log only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fettle
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="there is one FleetPolicy, and its name is default"
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Heard",type=integer,JSONPath=`.status.agents.expected`,description="agents that should be heard"
// +kubebuilder:printcolumn:name="Stale",type=integer,JSONPath=`.status.agents.stale`,description="of these, how many let their lease run out"
// +kubebuilder:printcolumn:name="Silent",type=integer,JSONPath=`.status.agents.silent`,description="agents known to be silent"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
type FleetPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec FleetPolicySpec `json:"spec,omitempty"`
	// +optional
	Status FleetPolicyStatus `json:"status,omitempty"`
}

// FleetPolicySpec is what people decide.
type FleetPolicySpec struct {
	// silence says what is made of agents that fall silent.
	// +optional
	Silence *SilencePolicy `json:"silence,omitempty"`
}

// SilencePolicy limits what follows from the silence of agents: their conditions become Unknown, and rules then taint their
// nodes. What a living agent reports, and every recovery, is never limited.
type SilencePolicy struct {
	// window is how long a silence counts as new. Default 1m.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="window must be from 1s to 1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`
	// maxPerWindow is how many agents may become Unknown in a window at most. One always may. Default 20.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxPerWindow *int32 `json:"maxPerWindow,omitempty"`
	// maxPercentPerWindow is the same in percent of all agents that should be heard; the smaller of both counts. Default 10.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxPercentPerWindow *int32 `json:"maxPercentPerWindow,omitempty"`
	// suspendAbovePercent of the agents that should be heard, and at least three: when more than that let their leases run out,
	// nothing is made of any silence. 100 never suspends. Default 30.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	SuspendAbovePercent *int32 `json:"suspendAbovePercent,omitempty"`
	// cooldown is how long a milder verdict must have been right before it is taken. Default 2m.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="cooldown must be from 0s to 1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// override sets the verdict by hand, for a while.
	// +optional
	Override *SilenceOverride `json:"override,omitempty"`
}

// SilenceOverride is a verdict that a person answers for. It ends by itself.
type SilenceOverride struct {
	// verdict that holds: Normal lets every silence through, Partial so many as a window allows, Suspended none. Each silence
	// is still confirmed by a live read.
	// +kubebuilder:validation:Enum=Normal;Partial;Suspended
	Verdict string `json:"verdict"`
	// until is when the override ends, by the controller's clock.
	Until metav1.Time `json:"until"`
	// reason is why, for those who come after.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
}

// FleetPolicyStatus is the verdict on the fleet, with the numbers behind it.
type FleetPolicyStatus struct {
	// observedGeneration is that of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// verdict in force: Normal, Partial, Suspended or Blind.
	// +kubebuilder:validation:Enum=Normal;Partial;Suspended;Blind
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// computed is the verdict that would be in force without an override.
	// +kubebuilder:validation:Enum=Normal;Partial;Suspended;Blind
	// +optional
	Computed string `json:"computed,omitempty"`
	// since is when the verdict came into force, by the controller's clock.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// reason of the computed verdict.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says the reason with numbers.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// agents counts agents, as of at most a quarter of a minute ago.
	// +optional
	Agents *FleetAgents `json:"agents,omitempty"`
	// conditions are ActsOnSilence and Overridden.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FleetAgents counts agents.
type FleetAgents struct {
	// expected agents should be heard: those that are neither away on purpose, nor known to be silent, nor yet to report.
	Expected int32 `json:"expected"`
	// stale agents among them have let their lease run out.
	Stale int32 `json:"stale"`
	// waiting agents among the stale ones would be Unknown if the verdict or its limit did not forbid it.
	Waiting int32 `json:"waiting"`
	// new silences were acted on within the window.
	New int32 `json:"new"`
	// silent agents are known to be.
	Silent int32 `json:"silent"`
	// away agents are on machines that are away on purpose.
	Away int32 `json:"away"`
	// neverReported counts nodes where no agent has appeared yet.
	NeverReported int32 `json:"neverReported"`
}

// FleetPolicyList is a list of FleetPolicies.
//
// +kubebuilder:object:root=true
type FleetPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FleetPolicy `json:"items"`
}

// Types of conditions in FleetPolicy.status.conditions. Their reasons stand in the table of internal/fleet.
const (
	// FleetActsOnSilence is True while something follows from the silence of an agent.
	FleetActsOnSilence = "ActsOnSilence"
	// FleetOverridden is True while a person's verdict is in force.
	FleetOverridden = "Overridden"
)
