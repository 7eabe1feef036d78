package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/test/port"
	"github.com/fettle-dev/fettle/test/process"
	"github.com/fettle-dev/fettle/test/scratch"
)

// Options say what a control plane consists of. The zero value is etcd and the API server.
type Options struct {
	// ControllerManager and Scheduler start those programs too. Without the controller manager no ServiceAccount
	// "default" is made, tokens for pods are refused, nothing is garbage collected and no node is ever tainted
	// NotReady.
	ControllerManager bool
	Scheduler         bool

	// AdvertiseAddress is what the Service kubernetes.default points to; default 10.0.2.2, the host as seen from a
	// QEMU guest. The API server listens on 127.0.0.1 alone.
	AdvertiseAddress string

	// HostAliases maps names to addresses that only the API server resolves, so that it finds kubelets by the name
	// of their node (kubectl exec and logs). It then dials kubelets by name alone, at the port their Node states.
	HostAliases map[string]string

	// Audit records every request, for Requests.
	Audit bool

	// Extra arguments come last, so they override.
	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string

	// Binaries is the folder of the programs; default Binaries().
	Binaries string
}

// ControlPlane is a running control plane. Its methods may be called from any goroutine, but StopAPIServer,
// StartAPIServer and Stop only by one at a time.
type ControlPlane struct {
	opts     Options
	binaries string
	folder   *scratch.Folder
	ca       *authority
	port     *port.Port
	config   *rest.Config

	kubeconfig           string
	controllerKubeconfig string
	schedulerKubeconfig  string
	controllerPort       *port.Port
	schedulerPort        *port.Port

	etcd, apiServer, controllerManager, scheduler *process.Process
}

// startLimit bounds the start of one program. On a busy machine of two cores the API server needs about 20 seconds.
const startLimit = 2 * time.Minute

// ForTest starts a control plane, waits until it is ready, and stops it and removes its folder at the end of the
// test. Programs that are not in the cache yet are built first, see Binaries.
func ForTest(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start starts a control plane and waits until it is ready. The caller must Stop it; should the caller be killed, its
// processes die at once and its folder is removed at the next Start.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.AdvertiseAddress == "" {
		opts.AdvertiseAddress = qemuHostAddress
	}
	binaries := opts.Binaries
	if binaries == "" {
		var err error
		if binaries, err = Binaries(ctx, os.Stderr); err != nil {
			return nil, err
		}
	}
	folder, err := scratch.New("controlplane")
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{opts: opts, binaries: binaries, folder: folder}
	if err := errors.Join(c.prepare(), ctx.Err()); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.run(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// prepare makes everything that lasts over restarts of the programs: certificates, ports, files.
func (c *ControlPlane) prepare() (err error) {
	if err := os.Mkdir(c.folder.Join("pki"), 0o755); err != nil {
		return fmt.Errorf("make the folder of certificates: %w", err)
	}
	for _, p := range []**port.Port{&c.port, &c.controllerPort, &c.schedulerPort} {
		if *p, err = port.Reserve(port.ReusePort); err != nil {
			return err
		}
	}
	if c.ca, err = newAuthority(c.folder.Join("pki")); err != nil {
		return err
	}
	if err := c.ca.serving("apiserver", "127.0.0.1", "localhost", qemuHostAddress, apiServiceAddress, c.opts.AdvertiseAddress,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"); err != nil {
		return err
	}
	if err := c.ca.clientFiles("kubelet-client", kubeletClientUser, adminGroup); err != nil {
		return err
	}
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the key of service account tokens: %w", err)
	}
	if err := c.ca.writeKey("sa", signing); err != nil {
		return err
	}
	if c.kubeconfig, err = c.KubeconfigFor("fettle-test-admin", adminGroup); err != nil {
		return err
	}
	if c.controllerKubeconfig, err = c.KubeconfigFor(controllerUser); err != nil {
		return err
	}
	if c.schedulerKubeconfig, err = c.KubeconfigFor(schedulerUser); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return fmt.Errorf("read the admin's kubeconfig: %w", err)
	}
	c.config.QPS = -1 // no limit on the client's side
	if err := c.writeAuditPolicy(); err != nil {
		return err
	}
	return c.writeHosts()
}

func (c *ControlPlane) run(ctx context.Context) (err error) {
	if c.etcd, err = c.startEtcd(); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if c.opts.ControllerManager {
		if c.controllerManager, err = c.startControllerManager(); err != nil {
			return err
		}
	}
	if c.opts.Scheduler {
		if c.scheduler, err = c.startScheduler(); err != nil {
			return err
		}
	}
	if c.controllerManager != nil {
		if err := c.awaitOK(ctx, urlOf(c.controllerPort)+"/healthz", c.controllerManager); err != nil {
			return err
		}
		if err := c.awaitDefaultServiceAccount(ctx); err != nil {
			return err
		}
	}
	if c.scheduler != nil {
		return c.awaitOK(ctx, urlOf(c.schedulerPort)+"/readyz", c.scheduler)
	}
	return nil
}

// StartAPIServer starts the API server after StopAPIServer, on the same port with the same data, and waits until it
// is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) (err error) {
	if c.apiServer != nil {
		return errors.New("start the API server: it is running")
	}
	if c.apiServer, err = c.startAPIServer(); err != nil {
		return err
	}
	return c.awaitOK(ctx, c.url()+"/readyz", c.apiServer, c.etcd)
}

// StopAPIServer stops the API server as a shutdown does; clients see their connections end and then refused ones.
func (c *ControlPlane) StopAPIServer() {
	if c.apiServer != nil {
		c.apiServer.Stop(20 * time.Second)
		c.apiServer = nil
	}
}

// Stop kills all programs and removes the folder.
func (c *ControlPlane) Stop() error {
	for _, p := range []*process.Process{c.scheduler, c.controllerManager, c.apiServer, c.etcd} {
		if p != nil {
			p.Kill()
		}
	}
	for _, p := range []*port.Port{c.port, c.controllerPort, c.schedulerPort} {
		p.Release()
	}
	return c.folder.Remove()
}

// Config is the admin's client configuration, without a rate limit on the client's side. It is the caller's own copy.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of the admin's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Dir is the folder of logs, certificates and kubeconfigs. It goes with Stop.
func (c *ControlPlane) Dir() string { return c.folder.Path() }

// BinDir is the folder of the programs, for those that a test starts itself (kubelet, kube-proxy).
func (c *ControlPlane) BinDir() string { return c.binaries }

// CAFile is the path of the cluster CA's certificate.
func (c *ControlPlane) CAFile() string { return c.ca.file() }

func (c *ControlPlane) url() string { return urlOf(c.port) }

func urlOf(p *port.Port) string { return "https://" + net.JoinHostPort("127.0.0.1", p.String()) }

// awaitOK waits until the address answers 200. It gives up when one of the programs ends that the answer depends on.
func (c *ControlPlane) awaitOK(ctx context.Context, url string, programs ...*process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", url, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := get(ctx, client, url)
		if last == nil {
			return nil
		}
		for _, p := range programs {
			if failure := p.Failure(); failure != nil {
				return fmt.Errorf("wait for %s: %w", url, failure)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last answer: %w\n%s", url, ctx.Err(), last, programs[0].LogTail())
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
