package kubeclient

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

func fromKubeconfig(path string) (Candidate, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Candidate{}, fmt.Errorf("read kubeconfig: %w", err)
	}
	loaded, err := clientcmd.Load(content)
	if err != nil {
		return Candidate{}, fmt.Errorf("read kubeconfig %s: %w", path, namingKey(err, content))
	}
	if err := checkAddresses(loaded.Clusters); err != nil {
		return Candidate{}, fmt.Errorf("use kubeconfig %s: %w", path, err)
	}
	for _, cluster := range loaded.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range loaded.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(loaded); err != nil {
		return Candidate{}, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	// Not the deferred loader of clientcmd: it turns to the pod's ServiceAccount when the file is empty.
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return Candidate{}, fmt.Errorf("use kubeconfig %s: it names no cluster", path)
	case err != nil:
		return Candidate{}, fmt.Errorf("use kubeconfig %s: %w", path, err)
	}
	authority, err := readIfNamed(config.CAFile)
	if err != nil {
		return Candidate{}, fmt.Errorf("use kubeconfig %s: %w", path, err)
	}
	return Candidate{Config: config, Origin: "kubeconfig " + path, Fingerprint: fingerprint(content, authority)}, nil
}

// proxySchemes are those that client-go takes.
var proxySchemes = []string{"http", "https", "socks5"}

// checkAddresses refuses what would be shown with what is secret in it: an API server's address is shown in logs, errors
// and the status; a proxy's, which may have credentials, only by client-go, where it cannot use it.
func checkAddresses(clusters map[string]*clientcmdapi.Cluster) error {
	for name, cluster := range clusters {
		if hasCredentials(cluster.Server) {
			return fmt.Errorf("the server of cluster %s has credentials in its address, which is shown; name them under users, which is not", name)
		}
		if cluster.ProxyURL == "" {
			continue
		}
		if proxy, err := url.Parse(cluster.ProxyURL); err != nil || !slices.Contains(proxySchemes, proxy.Scheme) {
			return fmt.Errorf("the proxy-url of cluster %s is no URL of a proxy, such as http://10.0.0.1:3128", name)
		}
	}
	return nil
}

// hasCredentials reports whether an address has a part for a user. It need not parse: one that does not is shown, too.
func hasCredentials(address string) bool { return strings.Contains(address, "@") }

// namingKey adds to the error of a kubeconfig that cannot be decoded which value is not base64; the error itself says only
// that one is not.
func namingKey(err error, content []byte) error {
	var file struct {
		Clusters []struct {
			Name    string
			Cluster struct {
				Authority string `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			Name string
			User struct {
				Certificate string `json:"client-certificate-data"`
				Key         string `json:"client-key-data"`
			}
		}
	}
	if yaml.Unmarshal(content, &file) != nil {
		return err
	}
	bad := func(value string) bool {
		_, err := base64.StdEncoding.DecodeString(value)
		return err != nil
	}
	for _, c := range file.Clusters {
		if bad(c.Cluster.Authority) {
			return fmt.Errorf("certificate-authority-data of cluster %s: %w", c.Name, err)
		}
	}
	for _, u := range file.Users {
		switch {
		case bad(u.User.Certificate):
			return fmt.Errorf("client-certificate-data of user %s: %w", u.Name, err)
		case bad(u.User.Key):
			return fmt.Errorf("client-key-data of user %s: %w", u.Name, err)
		}
	}
	return err
}

func readIfNamed(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	return os.ReadFile(path)
}
