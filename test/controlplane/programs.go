package controlplane

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/test/port"
	"github.com/fettle-dev/fettle/test/process"
)

const (
	serviceRange      = "10.0.0.0/24"
	apiServiceAddress = "10.0.0.1"
	qemuHostAddress   = "10.0.2.2" // the host as seen by a guest of QEMU's user network
	serviceIssuer     = "https://kubernetes.default.svc.cluster.local"

	adminGroup        = "system:masters"
	controllerUser    = "system:kube-controller-manager"
	schedulerUser     = "system:kube-scheduler"
	kubeletClientUser = "kube-apiserver-kubelet-client" // as whom the API server calls kubelets
)

// The flags are kubeadm's where it sets them; what differs is said beside the flag.

func (c *ControlPlane) startEtcd() (*process.Process, error) {
	return c.start("etcd",
		"--name=etcd",
		"--data-dir="+c.folder.Join("etcd"),
		"--listen-client-urls="+c.etcdSocket(),
		"--listen-peer-urls=unix://"+c.folder.Join("peer.sock"),
		"--advertise-client-urls=http://127.0.0.1:2379",       // these must name a port, and are never dialled: there is
		"--initial-advertise-peer-urls=http://127.0.0.1:2380", // one member, and its one client knows the socket
		"--initial-cluster=etcd=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // the data lives as long as this machine's page cache
	)
}

func (c *ControlPlane) etcdSocket() string { return "unix://" + c.folder.Join("etcd.sock") }

func (c *ControlPlane) startAPIServer() (*process.Process, error) {
	args := []string{
		"--etcd-servers=" + c.etcdSocket(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.port.String(),
		"--permit-port-sharing", // the port stays reserved while the server is down
		"--advertise-address=" + c.opts.AdvertiseAddress,
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.ca.file(),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"), "--kubelet-client-key=" + c.pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=" + c.kubeletAddressTypes(),
		"--service-account-issuer=" + serviceIssuer,
		"--service-account-key-file=" + c.pki("sa.key"), "--service-account-signing-key-file=" + c.pki("sa.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--shutdown-delay-duration=0s",
	}
	if c.opts.Audit {
		args = append(args,
			"--audit-policy-file="+c.folder.Join("audit-policy.yaml"),
			"--audit-log-path="+c.auditLog(),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=1000000", // MB: marks are offsets into one file, so it must never rotate
		)
	}
	args = append(args, c.opts.ExtraAPIServerArgs...)
	if len(c.opts.HostAliases) == 0 {
		return c.start("kube-apiserver", args...)
	}
	// A mount namespace of its own, with its own /etc/hosts; unshare and sh exec, so the process is the API server.
	command := append([]string{"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, c.folder.Join("hosts"), c.binary("kube-apiserver")}, args...)
	return process.Start(process.Spec{Command: command, Log: c.folder.Join("kube-apiserver.log")})
}

func (c *ControlPlane) kubeletAddressTypes() string {
	if len(c.opts.HostAliases) > 0 {
		return "Hostname"
	}
	return "InternalIP,ExternalIP,Hostname"
}

func (c *ControlPlane) startControllerManager() (*process.Process, error) {
	args := append(c.controllerArgs(c.controllerPort, c.controllerKubeconfig),
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--use-service-account-credentials",
		"--root-ca-file="+c.ca.file(),
		"--service-account-private-key-file="+c.pki("sa.key"),
		"--cluster-signing-cert-file="+c.ca.file(), "--cluster-signing-key-file="+c.pki("ca.key"),
		"--service-cluster-ip-range="+serviceRange,
	)
	return c.start("kube-controller-manager", append(args, c.opts.ExtraControllerManagerArgs...)...)
}

func (c *ControlPlane) startScheduler() (*process.Process, error) {
	return c.start("kube-scheduler", c.controllerArgs(c.schedulerPort, c.schedulerKubeconfig)...)
}

// controllerArgs are common to controller manager and scheduler. There is one of each, so they elect no leader: with
// an election they would end whenever a test stops the API server for longer than their lease.
func (c *ControlPlane) controllerArgs(p *port.Port, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + p.String(), "--permit-port-sharing",
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.ca.file(),
		"--leader-elect=false",
	}
}

func (c *ControlPlane) start(program string, args ...string) (*process.Process, error) {
	return process.Start(process.Spec{
		Command: append([]string{c.binary(program)}, args...),
		Log:     c.folder.Join(program + ".log"),
	})
}

func (c *ControlPlane) binary(program string) string { return filepath.Join(c.binaries, program) }

func (c *ControlPlane) pki(name string) string { return c.folder.Join("pki", name) }

// writeHosts writes the API server's /etc/hosts: the machine's own and the aliases.
func (c *ControlPlane) writeHosts() error {
	own, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return fmt.Errorf("read /etc/hosts: %w", err)
	}
	var text strings.Builder
	text.Write(own)
	text.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(c.opts.HostAliases)) {
		fmt.Fprintf(&text, "%s %s\n", c.opts.HostAliases[name], name)
	}
	if err := os.WriteFile(c.folder.Join("hosts"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the API server's hosts: %w", err)
	}
	return nil
}
