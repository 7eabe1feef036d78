// Package v1alpha1 holds NodeReadinessRule, which maps conditions of a Node to taints on it.
//
// Group, version, kind and field names are those of the Kubernetes node readiness API, so that existing manifests apply.
// Where the schema is deliberately wider, docs/reference/compatibility.md says so.
//
// +kubebuilder:object:generate=true
// +groupName=readiness.node.x-k8s.io
package v1alpha1
