package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Host is what the agent of one node says of its machine. It has the node's name, is made by the controller with an
// ownerReference to the Node, and goes with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=fettle
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether the agent is alive"
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.health.status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.health.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.health.since`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Host struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HostSpec   `json:"spec"`
	Status HostStatus `json:"status,omitempty"`
}

// HostSpec ties a Host to one Node object. Only the controller writes it.
type HostSpec struct {
	// nodeUID is the UID of the Node this Host reports on. An agent whose Node has another UID treats the Host as
	// foreign and writes nothing to it.
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="nodeUID must not be empty"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeUID is immutable; a recreated Node gets a new Host"
	NodeUID types.UID `json:"nodeUID"`
}

// HostStatus is written by the node's agent. The controller's only part in it is Ready=Unknown while the agent is silent.
type HostStatus struct {
	// conditions has one type, Ready: is the agent alive, and can it reach what it works with.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// agent identifies the running agent process.
	// +optional
	Agent *HostAgent `json:"agent,omitempty"`

	// health summarises every check of the machine.
	// +optional
	Health *HostHealth `json:"health,omitempty"`

	// conditionTypes are the condition types that this agent publishes on its Node, sorted. While the agent is silent
	// the controller sets exactly these to Unknown; so they have a prefix, as no type of Kubernetes itself has.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=316
	// +kubebuilder:validation:items:Pattern=`^[^/]+/[^/]+$`
	// +optional
	ConditionTypes []string `json:"conditionTypes,omitempty"`
}

// HostAgent identifies an agent process.
type HostAgent struct {
	// version of the agent binary.
	Version string `json:"version"`
	// id is the holder identity of the agent's Lease, new for every process.
	ID string `json:"id"`
	// mode is how the agent runs.
	// +kubebuilder:validation:Enum=DaemonSet;Service
	Mode string `json:"mode"`
	// bootID is the machine's /proc/sys/kernel/random/boot_id as the agent saw it at its start.
	BootID string `json:"bootID"`
	// startedAt is when the process started, by the machine's clock.
	StartedAt metav1.Time `json:"startedAt"`
	// publicKey is what values for this agent are sealed to, so that nobody else can read them: "hpke-x25519:" and 32
	// bytes in base64. It stays the same while the machine's state folder does. Absent: the agent takes no sealed values.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+:[A-Za-z0-9+/]+=*$`
	// +optional
	PublicKey string `json:"publicKey,omitempty"`
}

// HostHealth is the state of all checks of one machine.
type HostHealth struct {
	// status is the worst of all checks: Healthy, Degraded, Unhealthy or Unknown.
	// +kubebuilder:validation:Enum=Healthy;Degraded;Unhealthy;Unknown
	Status string `json:"status"`
	// reason is that of the worst check, empty when all are well.
	// +optional
	Reason string `json:"reason,omitempty"`
	// since is when the worst check came to this status and reason, or the last of all checks to be well, by the machine's
	// clock.
	Since metav1.Time `json:"since"`
	// counts says how many checks stand at each verdict.
	Counts CheckCounts `json:"counts"`
	// checks are those that are neither ok nor notApplicable, worst first, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Checks []HostCheck `json:"checks,omitempty"`
}

// CheckCounts counts checks by verdict.
type CheckCounts struct {
	OK            int32 `json:"ok"`
	Degraded      int32 `json:"degraded"`
	Fatal         int32 `json:"fatal"`
	Unknown       int32 `json:"unknown"`
	NotApplicable int32 `json:"notApplicable"`
}

// HostCheck is one check that is not well.
type HostCheck struct {
	// check is the check's name, e.g. "cni-config".
	Check string `json:"check"`
	// status is the verdict: degraded, fatal or unknown.
	// +kubebuilder:validation:Enum=degraded;fatal;unknown
	Status string `json:"status"`
	// reason is a name from the check's table of reasons.
	Reason string `json:"reason"`
	// message says what was seen, without numbers that change from look to look.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the check came to this status and reason, by the machine's clock.
	Since metav1.Time `json:"since"`
}

// HostList is a list of Hosts.
//
// +kubebuilder:object:root=true
type HostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Host `json:"items"`
}

// Types and reasons of conditions in Host.status.conditions.
const (
	// HostReady says whether the agent is alive and reaches the runtime it works with.
	HostReady = "Ready"

	// ReasonHeartbeatReceived : Ready=True, written by the agent.
	ReasonHeartbeatReceived = "HeartbeatReceived"
	// ReasonRuntimeUnreachable : Ready=False, written by the agent: it lives, but what it works with does not answer.
	ReasonRuntimeUnreachable = "RuntimeUnreachable"
	// ReasonHostStatusUnknown : Ready=Unknown, written by the controller: the agent stopped reporting.
	ReasonHostStatusUnknown = "HostStatusUnknown"
	// ReasonHostNeverReported : Ready=Unknown, written by the controller: no agent ever reported.
	ReasonHostNeverReported = "HostNeverReported"
)

// Condition types that agents publish on their Node. True is good.
const (
	// ConditionPrefix begins the types that only agents publish.
	ConditionPrefix = "fettle.dev/"

	ConditionAgentReady   = "fettle.dev/AgentReady"
	ConditionHealthy      = "fettle.dev/Healthy"
	ConditionNetworkReady = "fettle.dev/NetworkReady"
	ConditionStorageReady = "fettle.dev/StorageReady"
)

// ReasonAgentSilent is the reason of an agent's Node conditions while the agent is silent; the controller writes it with
// status Unknown.
const ReasonAgentSilent = "AgentSilent"

// ReasonHeartbeatImpaired is the reason of AgentReady=False of an agent that lives and cannot renew its Lease. The controller
// leaves it as it is when it calls that agent silent.
const ReasonHeartbeatImpaired = "HeartbeatImpaired"

// HeartbeatIntervalAnnotation on an agent's Lease is the time between two renewals, e.g. "10s". The controller waits for at
// least the Lease's duration and one interval before it calls the agent silent.
const HeartbeatIntervalAnnotation = "fettle.dev/heartbeat-interval"

// LeaseNamespace holds one Lease for every agent, named after its Node.
const LeaseNamespace = "fettle-node-lease"

// CanaryLease in LeaseNamespace is the controller's own: while its renewals reach the controller as those of the agents do, it
// is not blind. No node may have this name.
const CanaryLease = "fettle-controller-canary"
