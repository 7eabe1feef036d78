package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// knownSockets are where runtimes listen unless told otherwise, in the order in which they are tried: containerd, CRI-O,
// cri-dockerd, and the containerd of k3s and RKE2.
var knownSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock", "/run/k3s/containerd/containerd.sock",
}

// endpoint is where a machine's container runtime is.
type endpoint struct {
	// socket is a host path; empty: there is none.
	socket string
	// expected : the configuration or a kubelet asks for a runtime that speaks CRI, so that none is a fault.
	expected bool
}

// locate finds the runtime's socket: as configured, else as the kubelet is set to use, else the first of the known ones
// that exists. A machine on which a kubelet has run is expected to have one.
func locate(host *hostfs.Root, configured string) (endpoint, error) {
	if configured != "" {
		socket, err := socketOf(configured)
		return endpoint{socket: socket, expected: true}, err
	}
	if named := readKubeletSettings(host).ContainerRuntimeEndpoint; named != "" {
		socket, err := socketOf(named)
		if err != nil {
			err = fmt.Errorf("the kubelet's setting: %w", err)
		}
		return endpoint{socket: socket, expected: true}, err
	}
	_, err := host.Stat(kubeletDir)
	at := endpoint{expected: err == nil}
	for _, socket := range knownSockets {
		if _, err := host.Stat(socket); err == nil || !errors.Is(err, fs.ErrNotExist) {
			at.socket = socket // one that may not be looked at is there: connecting says more
			break
		}
	}
	return at, nil
}

// socketOf gives the host path of a unix:// endpoint. A path alone means the same, as it does to the kubelet.
func socketOf(endpoint string) (string, error) {
	socket := strings.TrimPrefix(endpoint, "unix://")
	if !path.IsAbs(socket) || strings.ContainsRune(socket, 0) {
		return "", fmt.Errorf("the endpoint %q is no unix socket", endpoint)
	}
	return path.Clean(socket), nil
}
