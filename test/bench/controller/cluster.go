package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/port"
	"github.com/fettle-dev/fettle/test/process"
)

const (
	namespace      = "fettle-system"
	controllerUser = "system:serviceaccount:fettle-system:controller"
	leaderLease    = "fettle-controller"
)

// cluster is a control plane with Fettle's manifests, and the controller's program.
type cluster struct {
	*controlplane.ControlPlane
	clients      *kubernetes.Clientset
	rules        client.Client
	asController string // kubeconfig
	program      string
}

func newCluster(ctx context.Context) (*cluster, error) {
	root, err := controlplane.RepoRoot()
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Audit: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane, program: filepath.Join(plane.Dir(), "controller")}
	if err := c.prepare(ctx, root); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return c, nil
}

func (c *cluster) prepare(ctx context.Context, root string) (err error) {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", c.program, "./cmd/controller")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the controller: %w\n%s", err, out)
	}
	deploy := filepath.Join(root, "deploy")
	if err := c.Apply(ctx, filepath.Join(deploy, "crds"), filepath.Join(deploy, "controller", "00-namespaces.yaml"), filepath.Join(deploy, "controller", "10-rights.yaml")); err != nil {
		return err
	}
	if c.asController, err = c.ServiceAccountKubeconfig(ctx, namespace, "controller", nil); err != nil {
		return err
	}
	config := c.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.clients, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := readinessv1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c.rules, err = client.New(c.Config(), client.Options{Scheme: scheme})
	return err
}

// controller is a running child.
type controller struct {
	*process.Process
	proc   procfs.Proc
	health *port.Port
	// began is the processor time of an earlier look.
	began float64
	// started is when the child was started, ready how long it took to say that it is.
	started time.Time
	ready   time.Duration
}

// start starts the controller and waits until it is ready. No agent is ever called silent: the bench stops and starts
// leases as it likes.
func (c *cluster) start(ctx context.Context) (*controller, error) {
	health, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := process.Start(process.Spec{
		Command: []string{c.program, "--kubeconfig=" + c.asController, "--leader-elect", "--log-level=warn",
			"--health-probe-bind-address=127.0.0.1:" + health.String(),
			"--host-lifecycle-grace-period=2h", "--host-startup-grace-period=2h"},
		Log: filepath.Join(c.Dir(), "fettle-controller.log"),
	})
	if err != nil {
		health.Release()
		return nil, err
	}
	one := &controller{Process: p, health: health, started: began}
	if one.proc, err = procfs.NewProc(p.PID()); err == nil {
		err = one.awaitReady(ctx)
	}
	if err != nil {
		one.end(p.Kill)
		return nil, err
	}
	one.ready = time.Since(began)
	return one, nil
}

func (c *controller) awaitReady(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+c.health.String()+"/readyz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		if failure := c.Failure(); failure != nil {
			return failure
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// stop ends the controller as a rollout does; it releases its leader lease.
func (c *controller) stop() { c.end(func() { c.Stop(30 * time.Second) }) }

func (c *controller) end(how func()) {
	how()
	c.health.Release()
}

// processor gives the processor time since the last call, in seconds.
func (c *controller) processor() float64 {
	stat, err := c.proc.Stat()
	if err != nil { // it has ended
		return 0
	}
	used := stat.CPUTime() - c.began
	c.began = stat.CPUTime()
	return used
}

// memory gives the resident memory now and at its peak, in bytes.
func (c *controller) memory() (now, peak uint64, err error) {
	status, err := c.proc.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of the controller: %w", err)
	}
	return status.VmRSS, status.VmHWM, nil
}

// leads waits until some controller holds the leader lease.
func (c *cluster) leads(ctx context.Context) error {
	for {
		lease, err := c.clients.CoordinationV1().Leases(namespace).Get(ctx, leaderLease, metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			return nil
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
