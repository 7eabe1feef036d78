package main

// level is a group of packages that need the same ground to stand on.
type level struct {
	name, says string
	// args of `go test`, packages included.
	args []string
	// dir is the folder of the module, from the root of the repository.
	dir string
}

// levels, cheapest first, so that a plain mistake shows before anything is booted.
var levels = []level{
	{name: "tools", says: "the project's own tools", args: []string{"./..."}, dir: "tools"},
	{name: "unit", says: "product code with the race detector; shells against the real API server and a real systemd", args: []string{"-race", "-timeout=40m", "-p=2", "./api/...", "./cmd/...", "./internal/..."}},
	{name: "ladder", says: "what the tests stand on: control plane, machines, stand-in kubelet, fleet; the manifests and the unit", args: []string{
		"-timeout=30m", "-p=1", "./test/bench/...", "./test/cache/...", "./test/controlplane/...", "./test/fleet/...", "./test/kubelet/...", "./test/machines/...", "./test/process/...", "./test/scratch/...",
		"./deploy/...", "./packaging/...",
	}},
	{name: "e2e", says: "the whole product on control plane and machines; the README's commands; the demo", args: []string{"-timeout=45m", "./test/e2e"}},
	{name: "vm", says: "a real kernel, containerd and kubelet in a virtual machine; the whole product in it", args: []string{"-timeout=45m", "-p=1", "./test/vm/...", "./test/e2e/daemonset/..."}},
}
