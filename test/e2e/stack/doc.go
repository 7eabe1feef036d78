// Package stack runs the whole product on real parts for tests and the demo: a control plane, machines with an agent's
// unit each, the stand-in kubelet beside every machine, and the controller as a process of its own.
//
// It takes the programs from bin/ as `make build` leaves them, and the manifests and the unit as they are shipped.
package stack
