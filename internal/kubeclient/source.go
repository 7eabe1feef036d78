package kubeclient

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrStandalone says that there is no API server to talk to: no kubeconfig was given, and the process does not run in a
// pod. It is a way to run, not a fault.
var ErrStandalone = errors.New("no kubeconfig was given and this is not a pod: running without a cluster")

// ServiceAccountDir is where a pod finds its token and the certificate authority.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// KubeletKubeconfigs is where kubelets usually keep the file that says how they reach the API server, by who put it
// there: kubeadm, cloud images, k3s, RKE2, MicroK8s.
var KubeletKubeconfigs = []string{
	"/etc/kubernetes/kubelet.conf",
	"/var/lib/kubelet/kubeconfig",
	"/etc/rancher/k3s/k3s.yaml",
	"/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
	"/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
	"/var/snap/microk8s/current/credentials/kubelet.config",
}

// Source says where credentials and the API server's address may come from.
type Source struct {
	// Kubeconfig is used alone when it is given.
	Kubeconfig string
	// ServiceAccountDir holds token and ca.crt in a pod. Empty: not looked at.
	ServiceAccountDir string
	// ServiceHost and ServicePort are the API server's service address, as a pod's environment has it.
	ServiceHost, ServicePort string
	// ReadHostFile reads a file of the host by its absolute path. Nil: the kubelet's files are not looked at.
	ReadHostFile func(path string) ([]byte, error)
	// KubeletKubeconfigs are the files of the host to look for the API server's address in.
	KubeletKubeconfigs []string
}

// Candidate is one way to the API server that may work.
type Candidate struct {
	Config *rest.Config
	// Origin says where it was found, for people.
	Origin string
	// Fingerprint changes when the files behind the candidate do. Tokens and client certificates that are named by
	// path are not in it: client-go reads those again by itself.
	Fingerprint string
}

// Candidates lists the ways to the API server, best first. Several differ in the address alone. The error is
// ErrStandalone when there is none by intention.
func (s Source) Candidates() ([]Candidate, error) {
	if s.Kubeconfig != "" {
		c, err := fromKubeconfig(s.Kubeconfig)
		if err != nil {
			return nil, err
		}
		return []Candidate{c}, nil
	}
	if s.ServiceAccountDir != "" {
		_, err := os.Stat(s.tokenFile())
		switch {
		case err == nil:
			return s.inCluster()
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("look for the pod's token: %w", err)
		}
	}
	return nil, ErrStandalone
}

func (s Source) tokenFile() string { return filepath.Join(s.ServiceAccountDir, "token") }

// inCluster pairs the pod's token and authority with every address known for the API server: those the host's kubelet
// uses, then the service's, which works only while the service proxy does.
func (s Source) inCluster() ([]Candidate, error) {
	authorityFile := filepath.Join(s.ServiceAccountDir, "ca.crt")
	authority, err := os.ReadFile(authorityFile)
	if err != nil {
		return nil, fmt.Errorf("read the pod's certificate authority: %w", err)
	}
	var candidates []Candidate
	seen := map[string]bool{}
	add := func(c *clientcmdapi.Cluster, origin string) {
		if c.Server == "" || seen[c.Server] || hasCredentials(c.Server) {
			return
		}
		seen[c.Server] = true
		candidates = append(candidates, Candidate{
			Config: &rest.Config{
				Host:            c.Server,
				BearerTokenFile: s.tokenFile(),
				TLSClientConfig: rest.TLSClientConfig{CAFile: authorityFile, ServerName: c.TLSServerName},
			},
			Origin:      origin,
			Fingerprint: fingerprint([]byte(c.Server), []byte(c.TLSServerName), authority),
		})
	}
	for _, path := range s.KubeletKubeconfigs {
		if cluster, ok := s.kubeletCluster(path); ok {
			add(cluster, "ServiceAccount token, address from the kubelet's "+path)
		}
	}
	if s.ServiceHost != "" {
		service := &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(s.ServiceHost, s.ServicePort)}
		add(service, "ServiceAccount token, service address")
	}
	if len(candidates) == 0 {
		return nil, errors.New("a ServiceAccount token is mounted, but no address of the API server is known: " +
			"neither a kubeconfig of the kubelet was found on the host nor is KUBERNETES_SERVICE_HOST set")
	}
	return candidates, nil
}

// kubeletCluster reads a kubelet's kubeconfig as far as the cluster of its current context. A file that is absent or
// does not parse is no candidate; the next one, or the service address, may do.
func (s Source) kubeletCluster(path string) (*clientcmdapi.Cluster, bool) {
	if s.ReadHostFile == nil {
		return nil, false
	}
	content, err := s.ReadHostFile(path)
	if err != nil {
		return nil, false
	}
	loaded, err := clientcmd.Load(content)
	if err != nil {
		return nil, false
	}
	current, ok := loaded.Contexts[loaded.CurrentContext]
	if !ok {
		return nil, false
	}
	cluster, ok := loaded.Clusters[current.Cluster]
	return cluster, ok
}

func fingerprint(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
