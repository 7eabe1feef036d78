package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// NodesGroup is the group of every node's kubelet: KubeconfigFor(NodeUser("a"), NodesGroup).
const NodesGroup = "system:nodes"

// NodeUser is the user name of a node's kubelet.
func NodeUser(node string) string { return "system:node:" + node }

// KubeconfigFor writes a kubeconfig that authenticates with a client certificate as the user in the groups, and
// returns its path. Every call makes a new one.
func (c *ControlPlane) KubeconfigFor(user string, groups ...string) (string, error) {
	certificate, key, err := c.ca.client(user, groups)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(user, &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
}

// ServiceAccountKubeconfig writes a kubeconfig that carries a token of the ServiceAccount, valid for an hour, and
// returns its path. With boundNode the token is bound to that Node object and names it, as tokens for bare metal do.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string, boundNode *corev1.Node) (string, error) {
	var bound *authenticationv1.BoundObjectReference
	if boundNode != nil {
		bound = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: boundNode.Name, UID: boundNode.UID}
	}
	token, err := c.ServiceAccountToken(ctx, namespace, name, bound)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(namespace+"-"+name, &clientcmdapi.AuthInfo{Token: token})
}

// ServiceAccountToken requests a token of the ServiceAccount, valid for an hour. bound may name a Pod, Node or Secret
// that it dies with, or be nil.
func (c *ControlPlane) ServiceAccountToken(ctx context.Context, namespace, name string, bound *authenticationv1.BoundObjectReference) (string, error) {
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return "", fmt.Errorf("request a token: %w", err)
	}
	seconds := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound}}
	answer, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return answer.Status.Token, nil
}

// KubeconfigVia writes a copy of a kubeconfig that reaches the API server under another host (name or address, the
// port stays), for example 10.0.2.2 for a QEMU guest, and returns its path.
func (c *ControlPlane) KubeconfigVia(host, path string) (string, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			return "", fmt.Errorf("read the server of kubeconfig %s: %w", path, err)
		}
		server.Host = host + ":" + server.Port()
		cluster.Server = server.String()
	}
	return c.saveKubeconfig("via-"+host, config)
}

func (c *ControlPlane) writeKubeconfig(user string, credential *clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["fettle"] = &clientcmdapi.Cluster{Server: c.url(), CertificateAuthorityData: c.ca.pem()}
	config.AuthInfos[user] = credential
	config.Contexts["fettle"] = &clientcmdapi.Context{Cluster: "fettle", AuthInfo: user}
	config.CurrentContext = "fettle"
	return c.saveKubeconfig(user, config)
}

func (c *ControlPlane) saveKubeconfig(label string, config *clientcmdapi.Config) (string, error) {
	name := strings.NewReplacer(":", "-", "/", "-").Replace(label)
	file, err := os.CreateTemp(c.Dir(), name+"-*.kubeconfig")
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for %s: %w", label, err)
	}
	file.Close()
	if err := clientcmd.WriteToFile(*config, file.Name()); err != nil {
		return "", fmt.Errorf("write a kubeconfig for %s: %w", label, err)
	}
	return file.Name(), nil
}
