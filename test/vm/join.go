package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// hostAddress is the host as seen from the guest.
const hostAddress = "10.0.2.2"

// Paths in the guest are kubeadm's.
const (
	kubeletKubeconfig = "/etc/kubernetes/kubelet.conf"
	kubeletConfig     = "/var/lib/kubelet/config.yaml"
	clusterCA         = "/etc/kubernetes/pki/ca.crt"
	proxyKubeconfig   = "/etc/kubernetes/kube-proxy.conf"
	proxyConfig       = "/etc/kubernetes/kube-proxy.yaml"
)

// seedFiles is everything that differs between runs.
func (v *VM) seedFiles(ctx context.Context) ([]File, error) {
	hosts := fmt.Sprintf("127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 %s\n", v.opts.Name)
	files := []File{{Path: "/etc/hosts", Content: []byte(hosts)}}
	pause, err := Image(ctx, v.folder.Path(), Program{Tag: sandboxTag, Package: "./test/vm/pause", Path: "/pause"})
	if err != nil {
		return nil, err
	}
	for i, image := range append([]string{pause}, v.opts.Images...) {
		content, err := os.ReadFile(image)
		if err != nil {
			return nil, fmt.Errorf("read an image for the guest: %w", err)
		}
		files = append(files, File{Path: fmt.Sprintf("/opt/images/%02d.tar", i), Content: content})
	}
	if v.opts.ControlPlane != nil {
		joining, err := v.joinFiles()
		if err != nil {
			return nil, err
		}
		files = append(files, joining...)
	}
	return append(files, v.opts.Files...), nil
}

// joinFiles is what kubelet and kube-proxy need. Their units do nothing without it.
func (v *VM) joinFiles() ([]File, error) {
	c := v.opts.ControlPlane
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		return nil, fmt.Errorf("read the cluster CA: %w", err)
	}
	kubelet, err := kubeconfig(c, controlplane.NodeUser(v.opts.Name), controlplane.NodesGroup)
	if err != nil {
		return nil, err
	}
	proxy, err := kubeconfig(c, "system:kube-proxy")
	if err != nil {
		return nil, err
	}
	kubeletText, err := json.Marshal(v.kubeletConfiguration()) // JSON is YAML
	if err != nil {
		return nil, fmt.Errorf("encode the kubelet's configuration: %w", err)
	}
	proxyText, err := json.Marshal(proxyConfiguration)
	if err != nil {
		return nil, fmt.Errorf("encode kube-proxy's configuration: %w", err)
	}
	return []File{
		{Path: clusterCA, Content: ca},
		{Path: kubeletKubeconfig, Content: kubelet, Mode: 0o600},
		{Path: kubeletConfig, Content: kubeletText},
		{Path: proxyKubeconfig, Content: proxy, Mode: 0o600},
		{Path: proxyConfig, Content: proxyText},
	}, nil
}

// kubeconfig is one that works in the guest.
func kubeconfig(c *controlplane.ControlPlane, user string, groups ...string) ([]byte, error) {
	path, err := c.KubeconfigFor(user, groups...)
	if err != nil {
		return nil, err
	}
	if path, err = c.KubeconfigVia(hostAddress, path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a kubeconfig for the guest: %w", err)
	}
	return text, nil
}

func (v *VM) kubeletConfiguration() map[string]any {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		// The number is forwarded as it is: a Node states one port for all who ask.
		"port": v.kubeletPort.Number(),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": clusterCA},
		},
		"authorization":               map[string]any{"mode": "Webhook"},
		"cgroupDriver":                "systemd",
		"containerRuntimeEndpoint":    "unix:///run/containerd/containerd.sock",
		"imageGCHighThresholdPercent": 100, // never: what is collected cannot be pulled again
	}
	maps.Copy(config, v.opts.Kubelet)
	return config
}

var proxyConfiguration = map[string]any{
	"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
	"clientConnection": map[string]any{"kubeconfig": proxyKubeconfig},
	"mode":             "nftables",
	"clusterCIDR":      "10.88.0.0/24", // of the bridge
}

// AwaitNodeReady waits until the Node is Ready in the boot that is running now.
func (v *VM) AwaitNodeReady(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(v.opts.ControlPlane.Config())
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", v.opts.Name, err)
	}
	boot, err := v.BootID(ctx)
	if err != nil {
		return err
	}
	return v.await(ctx, readyLimit, "readiness", func(ctx context.Context) (bool, error) {
		node, err := clients.CoreV1().Nodes().Get(ctx, v.opts.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return isReady(node, boot)
	})
}

func isReady(node *corev1.Node, boot string) (bool, error) {
	if node.Status.NodeInfo.BootID != boot {
		return false, fmt.Errorf("the Node tells of boot %s, not of %s", node.Status.NodeInfo.BootID, boot)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, fmt.Errorf("condition Ready is %s: %s", condition.Status, condition.Message)
		}
	}
	return false, fmt.Errorf("the Node has no condition Ready")
}

// breakProxy adds the tables before it deletes them because nft fails on one that is not there.
const breakProxy = `
systemctl stop kube-proxy
for family in ip ip6; do nft "add table $family kube-proxy; delete table $family kube-proxy"; done
`

// BreakServiceProxy stops kube-proxy and takes its rules away: new connections to service addresses, the API
// server's 10.0.0.1 too, lead nowhere.
func (v *VM) BreakServiceProxy(ctx context.Context) error {
	_, err := v.Exec(ctx, "sh", "-euc", breakProxy)
	return err
}

// RepairServiceProxy starts kube-proxy again. Its rules are there once it has listed the services.
func (v *VM) RepairServiceProxy(ctx context.Context) error {
	_, err := v.Exec(ctx, "systemctl", "start", "kube-proxy")
	return err
}

func trimLine(text []byte) string { return strings.TrimSpace(string(text)) }
