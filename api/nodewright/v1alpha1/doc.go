// Package v1alpha1 holds NodeWright, which describes work to be done on hosts, and DeploymentPolicy, which says how it is
// rolled out.
//
// Group, version, kinds and field names are those of NVIDIA's NodeWright, so that existing manifests apply.
//
// Custom resources are not generated of it yet (kubebuilder:skip): nothing in a cluster acts on them, and a schema of ours
// would take the place of NodeWright's own.
//
// +kubebuilder:skip
// +kubebuilder:object:generate=true
// +groupName=nodewright.nvidia.com
package v1alpha1
