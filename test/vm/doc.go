// Package vm boots a virtual machine with a kernel, systemd, containerd, kubelet and kube-proxy of its own, and joins
// it to a control plane of test/controlplane. It is what a machine of a cluster is, but for the size: cgroup v2, real
// mounts, real reboots and power cuts, a DaemonSet's pods in real containers.
//
// QEMU emulates it (no KVM is needed, and FETTLE_VM_ACCELERATOR=kvm uses one), so that a boot takes tens of seconds:
// share one machine between the parts of a test. The root is a Debian bookworm made once by debootstrap and kept
// outside the checkout (test/cache, kind vm); a run writes to an overlay of it. What differs between runs
// (credentials, configuration, images) comes on a second disk, a bare tar archive that the guest unpacks at its first
// boot.
//
// The guest has QEMU's user network: the host is 10.0.2.2, the guest 10.0.2.15, also when there are several, and
// they do not reach each other. The way in is the QEMU guest agent, which needs no network.
//
// It needs root and the programs of debianPackages. Nothing can be pulled: images are built by
// tools/image (see Image) and imported before the kubelet starts.
package vm
