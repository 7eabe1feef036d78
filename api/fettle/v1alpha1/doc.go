// Package v1alpha1 holds Fettle's own kinds. Every one is cluster-scoped.
//
// Host is the report of one node's agent. Further kinds join it here when the code that needs them does.
//
// +kubebuilder:object:generate=true
// +groupName=fettle.dev
package v1alpha1
