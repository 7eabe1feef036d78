// Package nodewright judges NodeWrights and DeploymentPolicies: what is wrong with one, and what is only risky.
//
// It is pure, and the one place for it: the admission webhook, the command line and the controller ask it alike. What the
// schema of the API server can say is said here as well, since manifests on a machine without a cluster meet no schema.
package nodewright
