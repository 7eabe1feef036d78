package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Package is a piece of work.
//
// +kubebuilder:validation:XValidation:rule="!has(self.configInterrupts) || self.configInterrupts.all(key, has(self.configMap) && (key.contains('*') ? self.configMap.exists(c, c.matches('^' + key.replace('.', '[.]').replace('*', '.*') + '$')) : key in self.configMap))",message="every key of configInterrupts must match a key of configMap"
type Package struct {
	// name must not be set: it is the key of the package.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`

	// version is semantic. It decides on upgrades and downgrades, and is the tag of the image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version"`

	// image without tag and digest, e.g. ghcr.io/org/package.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\s@]') && !self.split('/')[size(self.split('/')) - 1].contains(':')",message="image must be a repository without tag, digest and spaces; version is the tag, containerSHA the digest"
	Image string `json:"image"`

	// containerSHA pins the image. Changing it alone is no upgrade.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +optional
	ContainerSHA string `json:"containerSHA,omitempty"`

	// agentImageOverride is accepted and has no effect but that changing it lets a stage that failed run again.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	AgentImageOverride string `json:"agentImageOverride,omitempty"`

	// interrupt that runs after the package was applied.
	// +optional
	Interrupt *Interrupt `json:"interrupt,omitempty"`

	// dependsOn has the packages that must be complete first: name to version.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(self[name]) > 0)",message="a dependency must have a version"
	// +optional
	DependsOn map[string]PackageVersion `json:"dependsOn,omitempty"`

	// configMap is what the package is configured with: file names to contents.
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^[-._a-zA-Z0-9]{1,253}$'))",message="keys of configMap must be file names of letters, digits, '-', '_' and '.'"
	// +optional
	ConfigMap map[string]string `json:"configMap,omitempty"`

	// configInterrupts run when a key of configMap changes. Their keys may hold the wildcard *.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	ConfigInterrupts map[string]Interrupt `json:"configInterrupts,omitempty"`

	// env of the package's steps.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the package's steps: all four, or none.
	// +optional
	Resources *PackageResources `json:"resources,omitempty"`

	// gracefulShutdown is how long a step that is stopped may take. Unset: 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="gracefulShutdown must not be negative"
	// +optional
	GracefulShutdown *metav1.Duration `json:"gracefulShutdown,omitempty"`

	// stageTimeout bounds one attempt at each stage, of an interrupt the whole stage. Unset: the default, 1h. 0: no bound.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="stageTimeout must not be negative"
	// +optional
	StageTimeout *metav1.Duration `json:"stageTimeout,omitempty"`

	// uninstall says whether the package can be uninstalled, and whether it is to be.
	// +optional
	Uninstall *Uninstall `json:"uninstall,omitempty"`
}

// PackageVersion is the version of a package.
//
// +kubebuilder:validation:MaxLength=128
type PackageVersion string

// Interrupt is what is done to a host after its packages were applied.
type Interrupt struct {
	// type of the interrupt.
	// +kubebuilder:validation:Enum=service;reboot;noop;restartAllServices
	Type InterruptType `json:"type"`
	// services to restart, in order, for type service.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +optional
	Services []string `json:"services,omitempty"`
}

// InterruptType names what an interrupt does.
type InterruptType string

const (
	InterruptService            InterruptType = "service"
	InterruptReboot             InterruptType = "reboot"
	InterruptNoop               InterruptType = "noop"
	InterruptRestartAllServices InterruptType = "restartAllServices"
)

// PackageResources bound what a step may take of its host. All are more than 0, and limits not less than requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.cpuRequest) && has(self.cpuLimit) && has(self.memoryRequest) && has(self.memoryLimit)",message="resources takes all four of cpuRequest, cpuLimit, memoryRequest and memoryLimit, or none"
type PackageResources struct {
	// +optional
	CPURequest *resource.Quantity `json:"cpuRequest,omitempty"`
	// +optional
	CPULimit *resource.Quantity `json:"cpuLimit,omitempty"`
	// +optional
	MemoryRequest *resource.Quantity `json:"memoryRequest,omitempty"`
	// +optional
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
}

// Uninstall says whether a package can be uninstalled, and whether it is to be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.apply) || !self.apply || has(self.enabled) && self.enabled",message="uninstall.apply needs uninstall.enabled"
type Uninstall struct {
	// enabled : the package has steps that uninstall it.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// apply uninstalls it from all nodes.
	// +optional
	Apply bool `json:"apply,omitempty"`
}
