// Package controlplane runs a real Kubernetes control plane for tests and for use by hand: etcd, kube-apiserver and,
// when asked, kube-controller-manager and kube-scheduler, of the versions pinned in binaries/go.mod.
//
// It is set up as kubeadm sets one up: TLS with a cluster CA, authorization Node and RBAC, the default admission
// plugins and NodeRestriction, bound service account tokens, bootstrap tokens. envtest is not used because it gives
// every user the group system:masters, disables the ServiceAccount admission plugin, cannot add names to the serving
// certificate, forgets its users at a restart, and leaves its processes behind when the test is killed.
//
// Everything listens on 127.0.0.1 or on unix sockets, so any number of control planes run side by side. They die
// with the program that started them.
package controlplane
