// Package v1alpha1 holds Fettle's own kinds. Every one is cluster-scoped.
//
// Host is the report of one node's agent, FleetPolicy what may be done to all machines at once. Further kinds join them here
// when the code that needs them does.
//
// +kubebuilder:object:generate=true
// +groupName=fettle.dev
package v1alpha1
