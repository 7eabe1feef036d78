package main

// level is a group of packages that need the same ground to stand on.
type level struct {
	name, says string
	// args of `go test`, packages included.
	args []string
}

// levels, cheapest first, so that a plain mistake shows before anything is booted.
var levels = []level{
	{"unit", "product code with the race detector; shells against the real API server", []string{"-race", "-timeout=30m", "-p=2", "./api/...", "./cmd/...", "./internal/..."}},
	{"controlplane", "the test control plane, the stand-in kubelet and the fleet simulator", []string{"-timeout=30m", "-p=1", "./test/controlplane/...", "./test/kubelet/...", "./test/fleet/..."}},
	{"machines", "machines with a real systemd", []string{"-timeout=30m", "-p=1", "./test/machines/..."}},
	{"e2e", "the whole product on control plane and machines; the README's commands; the demo", []string{"-timeout=45m", "-p=1", "./test/e2e/..."}},
	{"vm", "a real kernel, containerd and kubelet in a virtual machine", []string{"-timeout=45m", "-p=1", "./test/vm/..."}},
}
