// Package machines boots real systemd machines for tests: a Debian root with its own PID 1, D-Bus, logind and
// journald, in a container of systemd-nspawn, up in about a second.
//
// Each machine runs on an overlay over one cached root, in a mount namespace, a PID namespace and a control group of
// its own. Machines share the network of the test, so they reach an API server on 127.0.0.1, and listen on the same
// ports: give each agent its own. A machine has no kubelet; package test/kubelet stands in for it.
//
// Nothing outlives the test, even when it is killed: the kernel then kills the machine, and its mounts go with its
// mount namespace.
//
// It needs root, debootstrap and systemd-container (Debian's packages). Limits of CPU and memory do not work where
// the test machine mounts cgroup v1.
package machines
