package runtime

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// kubeletDir exists where a kubelet has ever run.
const kubeletDir = "/var/lib/kubelet"

// kubeletConfigFile is the kubelet's configuration file (kind KubeletConfiguration) where kubeadm puts it.
const kubeletConfigFile = kubeletDir + "/config.yaml"

// kubeletFlagFiles hold more flags of the kubelet, in the order in which kubeadm's systemd unit passes them on: the last
// of a flag that is there twice counts.
var kubeletFlagFiles = []string{kubeletDir + "/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"}

// kubeletSettings are those settings of the kubelet that checks use. Empty or nil: not set, or not to be read.
type kubeletSettings struct {
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint"`
	HealthzBindAddress       string `yaml:"healthzBindAddress"`
	HealthzPort              *int   `yaml:"healthzPort"`
}

// readKubeletSettings reads what the kubelet of this machine is set to. A file that is not there, cannot be read or does
// not parse sets nothing: it is the kubelet's to complain of it. Flags win over the file, as they do in the kubelet.
func readKubeletSettings(host *hostfs.Root) kubeletSettings {
	var s kubeletSettings
	if content, err := host.ReadFile(kubeletConfigFile); err == nil {
		if yaml.Unmarshal(content, &s) != nil {
			s = kubeletSettings{}
		}
	}
	for _, file := range kubeletFlagFiles {
		if content, err := host.ReadFile(file); err == nil {
			s.override(flagsOf(string(content)))
		}
	}
	return s
}

func (s *kubeletSettings) override(flags map[string]string) {
	if v, given := flags["container-runtime-endpoint"]; given {
		s.ContainerRuntimeEndpoint = v
	}
	if v, given := flags["healthz-bind-address"]; given {
		s.HealthzBindAddress = v
	}
	if v, given := flags["healthz-port"]; given {
		if port, err := strconv.Atoi(v); err == nil {
			s.HealthzPort = &port
		}
	}
}

// flagsOf reads the flags in the values of an environment file, such as
// KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/crio/crio.sock --node-ip 10.0.0.7".
func flagsOf(envFile string) map[string]string {
	flags := map[string]string{}
	for line := range strings.Lines(envFile) {
		_, value, assigns := strings.Cut(strings.TrimSpace(line), "=")
		if !assigns || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		words := strings.Fields(strings.Trim(value, `"'`))
		for i, word := range words {
			name, isFlag := strings.CutPrefix(word, "--")
			if !isFlag {
				continue
			}
			name, set, joined := strings.Cut(name, "=")
			if !joined && i+1 < len(words) {
				set = words[i+1]
			}
			flags[name] = strings.Trim(set, `"'`)
		}
	}
	return flags
}
