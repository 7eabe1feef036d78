// Package daemonset tests the product as it is shipped to clusters: the manifests of deploy/ on a virtual machine with a
// real kernel, containerd and kubelet, and images of the programs in bin/. The shipped unit is tested there as far as it
// takes a kernel and control groups of the machine's own.
//
// The cluster has this one machine, and the network of it is broken on purpose. The controller's pods run on it, so for
// those parts a third replica stands by as a process on the host, as other machines of a cluster would have one.
package daemonset
