package stack

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/kubelet"
	"github.com/fettle-dev/fettle/test/machines"
)

// Paths on a machine.
const (
	AgentUnit       = "nodeagent.service"
	AgentConfigPath = "/etc/fettle/nodeagent.yaml"
	KubeconfigPath  = "/etc/fettle/kubeconfig"
	CNIConfigPath   = "/etc/cni/net.d/10-bridge.conflist"
)

// WorkerLabel is on every node of a stack.
const WorkerLabel = "node-role.kubernetes.io/worker"

// CNIConfig is a network configuration for the plugins of Debian's containernetworking-plugins.
const CNIConfig = `{
  "cniVersion": "0.4.0",
  "name": "bridge",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// containerDropIn turns off what gives a unit a /proc of its own. On a machine that is a container its boot ID is a mount
// in /proc, which a new /proc lacks: the agent would read that of the machine underneath. On real machines both are one.
const containerDropIn = `[Service]
ProtectKernelTunables=no
ProtectControlGroups=no
`

// environment is the unit's nodeagent.env. Machines share the network of whatever runs the test, and whether its gateways
// answer, of IPv6 too, is not what is tested.
const environment = "FETTLE_CHECKS_DEFAULT_ROUTE_SEVERITY=info\n"

// debianPlugins is where Debian puts CNI plugins.
const debianPlugins = "/usr/lib/cni"

// Node is one machine, its agent and its stand-in kubelet.
type Node struct {
	Name    string
	Machine *machines.Machine

	stack   *Stack
	cancel  context.CancelFunc
	kubelet chan error
}

// startNode boots the machine with the shipped unit, registers its Node, and starts the agent. ctx is that of the whole
// stack, starting bounds the start.
func (s *Stack) startNode(ctx, starting context.Context, name string) (*Node, error) {
	n := &Node{Name: name, stack: s}
	unit, err := os.ReadFile(s.Path("packaging/systemd/nodeagent.service"))
	if err != nil {
		return n, fmt.Errorf("read the agent's unit: %w", err)
	}
	if _, err := os.Stat(debianPlugins + "/bridge"); err != nil {
		return n, fmt.Errorf("the machines use the CNI plugins of Debian's containernetworking-plugins; run tools/prepare: %w", err)
	}
	n.Machine, err = machines.Boot(starting, machines.Options{
		Name: name,
		Binds: append([]machines.Bind{
			{Source: s.Program("nodeagent"), Target: "/usr/bin/nodeagent"},
			{Source: debianPlugins, Target: "/opt/cni/bin"},
		}, s.opts.Binds...),
		Files: []machines.File{
			{Path: AgentConfigPath, Text: "nodeName: " + name + "\nkubeconfig: " + KubeconfigPath + "\n" + s.opts.AgentConfig},
			{Path: "/etc/fettle/nodeagent.env", Text: environment},
			{Path: CNIConfigPath, Text: CNIConfig},
		},
	})
	if err != nil {
		return n, err
	}
	if err := n.StartKubelet(ctx); err != nil {
		return n, err
	}
	node, err := n.Join(starting)
	if err != nil {
		return n, err
	}
	kubeconfig, err := n.NewKubeconfig(starting, node)
	if err != nil {
		return n, err
	}
	if err := n.Machine.WriteFile(starting, KubeconfigPath, kubeconfig, 0o600); err != nil {
		return n, err
	}
	// Only now: at its first boot systemd would enable a unit that it finds.
	if err := n.Machine.WriteFile(starting, "/etc/systemd/system/"+AgentUnit, string(unit), 0o644); err != nil {
		return n, err
	}
	if err := n.Machine.WriteFile(starting, "/etc/systemd/system/"+AgentUnit+".d/container.conf", containerDropIn, 0o644); err != nil {
		return n, err
	}
	if _, err := n.Machine.Exec(starting, "systemctl", "daemon-reload"); err != nil {
		return n, err
	}
	_, err = n.Machine.Exec(starting, "systemctl", "enable", "--now", AgentUnit)
	return n, err
}

// StartKubelet starts the stand-in kubelet, which registers the Node when it is missing.
func (n *Node) StartKubelet(ctx context.Context) error {
	kubeconfig, err := n.stack.ControlPlane.KubeconfigFor(controlplane.NodeUser(n.Name), controlplane.NodesGroup)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubelet's kubeconfig: %w", err)
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.kubelet = make(chan error, 1)
	go func() {
		n.kubelet <- kubelet.Run(ctx, config, kubelet.Options{
			Node:   n.Name,
			BootID: n.Machine.BootID,
		})
	}()
	return nil
}

// StopKubelet stops the stand-in; the Node stays.
func (n *Node) StopKubelet() error {
	if n.cancel == nil {
		return nil
	}
	n.cancel()
	n.cancel = nil
	return <-n.kubelet
}

// Join waits until the kubelet has registered the Node, and makes it a worker, which kubelets may not do themselves.
func (n *Node) Join(ctx context.Context) (*corev1.Node, error) {
	var node *corev1.Node
	err := Await(ctx, "node "+n.Name+" to be registered", func(ctx context.Context) (err error) {
		node, err = n.stack.GetNode(ctx, n.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	labelled := node.DeepCopy()
	labelled.Labels[WorkerLabel] = ""
	if err := n.stack.Client.Patch(ctx, labelled, client.MergeFrom(node)); err != nil {
		return nil, fmt.Errorf("make node %s a worker: %w", n.Name, err)
	}
	return labelled, nil
}

// NewKubeconfig gives a kubeconfig with a ServiceAccount token bound to the Node, as an administrator would deliver to a
// bare machine.
func (n *Node) NewKubeconfig(ctx context.Context, node *corev1.Node) (string, error) {
	path, err := n.stack.ControlPlane.ServiceAccountKubeconfig(ctx, "fettle-system", "nodeagent", node)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the agent's kubeconfig: %w", err)
	}
	return string(text), nil
}

// BreakCNI empties the machine's network configuration.
func (n *Node) BreakCNI(ctx context.Context) error {
	return n.Machine.WriteFile(ctx, CNIConfigPath, "{", 0o644)
}

// RepairCNI puts it back.
func (n *Node) RepairCNI(ctx context.Context) error {
	return n.Machine.WriteFile(ctx, CNIConfigPath, CNIConfig, 0o644)
}

// StopAgent and StartAgent stop and start the agent's unit.
func (n *Node) StopAgent(ctx context.Context) error {
	_, err := n.Machine.Exec(ctx, "systemctl", "stop", AgentUnit)
	return err
}

// StartAgent starts the agent's unit.
func (n *Node) StartAgent(ctx context.Context) error {
	_, err := n.Machine.Exec(ctx, "systemctl", "start", AgentUnit)
	return err
}

// KillAgent kills the agent with SIGKILL; systemd starts it again.
func (n *Node) KillAgent(ctx context.Context) error {
	_, err := n.Machine.Exec(ctx, "systemctl", "kill", "--signal=SIGKILL", AgentUnit)
	return err
}

func (n *Node) stop() error {
	err := n.StopKubelet()
	if n.Machine == nil {
		return err
	}
	return errors.Join(err, n.Machine.Remove())
}

func (n *Node) lastWords(ctx context.Context) string {
	if n.Machine == nil {
		return ""
	}
	journal, err := n.Machine.Exec(ctx, "journalctl", "--no-pager", "--lines=60", "--output=short-precise", "--unit="+AgentUnit)
	if err != nil {
		journal = err.Error()
	}
	return fmt.Sprintf("agent of %s:\n%s\n", n.Name, journal)
}
