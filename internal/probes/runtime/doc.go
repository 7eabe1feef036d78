// Package runtime holds the checks of what runs containers on a machine: the container runtime, the kubelet, and the
// systemd units they are.
package runtime
