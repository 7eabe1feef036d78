package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeWrightStatus is what became of a NodeWright. Its lists are samples of at most 100 nodes.
type NodeWrightStatus struct {
	// observedGeneration is the generation of spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// status sums all nodes up.
	// +optional
	Status Status `json:"status,omitempty"`

	// conditions: Ready says that every selected node is complete; further types tell what is in the way.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodeStatus is the status of nodes, those that are not complete first, at most 100.
	// +kubebuilder:validation:MaxProperties=100
	// +optional
	NodeStatus map[string]Status `json:"nodeStatus,omitempty"`

	// nodeState is the state of packages on nodes, by "name|version", those that are not complete first, at most 100 nodes.
	// +kubebuilder:validation:MaxProperties=100
	// +optional
	NodeState map[string]NodeState `json:"nodeState,omitempty"`

	// nodesInProgress is how many nodes are being worked on.
	// +optional
	NodesInProgress int32 `json:"nodesInProgress"`

	// completeNodes is how many of the selected nodes are complete, as "x/y".
	// +optional
	CompleteNodes string `json:"completeNodes,omitempty"`

	// packageList names the packages with their versions.
	// +optional
	PackageList string `json:"packageList,omitempty"`

	// compartmentStatuses tell how far each compartment has come.
	// +optional
	CompartmentStatuses map[string]CompartmentStatus `json:"compartmentStatuses,omitempty"`
}

// Status of a node, or of all.
//
// +kubebuilder:validation:Enum=unknown;complete;blocked;waiting;disabled;paused;in_progress;erroring
type Status string

const (
	StatusUnknown    Status = "unknown"
	StatusComplete   Status = "complete"
	StatusBlocked    Status = "blocked"
	StatusWaiting    Status = "waiting"
	StatusDisabled   Status = "disabled"
	StatusPaused     Status = "paused"
	StatusInProgress Status = "in_progress"
	StatusErroring   Status = "erroring"
)

// NodeState is the state of packages on one node, by "name|version".
type NodeState map[string]PackageStatus

// PackageStatus is the state of one package on one node.
type PackageStatus struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Image   string `json:"image"`
	// +optional
	ContainerSHA string `json:"containerSHA,omitempty"`
	Stage        Stage  `json:"stage"`
	State        State  `json:"state"`
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// +optional
	InterruptPending bool `json:"interruptPending,omitempty"`
}

// Stage of a package.
//
// +kubebuilder:validation:Enum=apply;interrupt;post-interrupt;config;uninstall;uninstall-interrupt;upgrade
type Stage string

// State of a stage.
//
// +kubebuilder:validation:Enum=complete;in_progress;skipped;erroring;unknown
type State string

// CompartmentStatus is how far a compartment has come.
type CompartmentStatus struct {
	Matched         int32       `json:"matched"`
	Ceiling         int32       `json:"ceiling"`
	InProgress      int32       `json:"inProgress"`
	Completed       int32       `json:"completed"`
	ProgressPercent int32       `json:"progressPercent"`
	BatchState      *BatchState `json:"batchState,omitempty"`
}

// BatchState is where the batches of a compartment stand.
type BatchState struct {
	CurrentBatch        int32 `json:"currentBatch"`
	ConsecutiveFailures int32 `json:"consecutiveFailures"`
	CompletedNodes      int32 `json:"completedNodes"`
	FailedNodes         int32 `json:"failedNodes"`
	ShouldStop          bool  `json:"shouldStop"`
	LastBatchSize       int32 `json:"lastBatchSize"`
	LastBatchFailed     bool  `json:"lastBatchFailed"`
}
