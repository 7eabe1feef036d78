package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/machines"
)

// Options say what a stack consists of.
type Options struct {
	// Nodes are the names of the machines.
	Nodes []string
	// Audit records every request to the API server.
	Audit bool
	// Scheduler and HostAliases are those of the control plane, for nodes that run pods.
	Scheduler   bool
	HostAliases map[string]string
	// Binds appear in every machine.
	Binds []machines.Bind
	// AgentConfig is every agent's nodeagent.yaml; default DefaultAgentConfig.
	AgentConfig string
	// ControllerArgs come after the flags that point the controller at the API server.
	ControllerArgs []string
	// NoController leaves it to the caller to start the controller.
	NoController bool
}

// DefaultAgentConfig looks often, so that tests and the demo need not wait long, and believes a network that they break
// and repair again and again.
const DefaultAgentConfig = `checks:
- name: cni-config
  interval: 1s
  timeout: 900ms
  flapping: {changes: 0}
- name: root-filesystem
  interval: 2s
  timeout: 1s
`

// Stack is a running product.
type Stack struct {
	ControlPlane *controlplane.ControlPlane
	// Client is the admin's, with all of Fettle's kinds.
	Client client.Client
	// Kube is the admin's client for what Client is not made for.
	Kube  kubernetes.Interface
	Nodes []*Node

	opts Options
	root string // of the checkout

	mu         sync.Mutex
	controller *controllerProcess
}

// ForTest starts a stack and takes it down at the end of the test. When the test failed, what the controller and the
// agents said is logged.
func ForTest(t testing.TB, opts Options) *Stack {
	t.Helper()
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.LastWords(context.WithoutCancel(t.Context())))
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts everything and waits until every agent has reported. The caller must Stop it.
func Start(ctx context.Context, opts Options) (_ *Stack, err error) {
	if opts.AgentConfig == "" {
		opts.AgentConfig = DefaultAgentConfig
	}
	s := &Stack{opts: opts}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, s.LastWords(context.WithoutCancel(ctx))), s.Stop())
		}
	}()
	if s.root, err = controlplane.RepoRoot(); err != nil {
		return nil, err
	}
	for _, program := range []string{"nodeagent", "controller"} {
		if _, err := os.Stat(s.Program(program)); err != nil {
			return nil, fmt.Errorf("%w; run 'make build' first", err)
		}
	}
	if s.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		ControllerManager: true, Scheduler: opts.Scheduler, HostAliases: opts.HostAliases, Audit: opts.Audit,
	}); err != nil {
		return nil, err
	}
	if s.Client, err = NewClient(s.ControlPlane.Config()); err != nil {
		return nil, err
	}
	if s.Kube, err = kubernetes.NewForConfig(s.ControlPlane.Config()); err != nil {
		return nil, fmt.Errorf("make the admin's client: %w", err)
	}
	if err := s.install(ctx); err != nil {
		return nil, err
	}
	if !opts.NoController {
		if err := s.StartController(); err != nil {
			return nil, err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	s.Nodes = make([]*Node, len(opts.Nodes))
	for i, name := range opts.Nodes {
		group.Go(func() (err error) {
			s.Nodes[i], err = s.startNode(ctx, groupCtx, name)
			return err
		})
	}
	return s, group.Wait()
}

// NewClient makes a client that knows Kubernetes' kinds and Fettle's, without a rate limit on its side.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), fettlev1alpha1.AddToScheme(scheme), readinessv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the admin's client: %w", err)
	}
	return c, nil
}

// install applies the shipped manifests, without the DaemonSet and the Deployment: here the programs run as units and
// processes.
func (s *Stack) install(ctx context.Context) error {
	if err := s.ControlPlane.Apply(ctx, s.Path("deploy/crds")); err != nil {
		return err
	}
	return s.ControlPlane.Apply(ctx,
		s.Path("deploy/daemonset/00-namespaces.yaml"), s.Path("deploy/daemonset/10-rights.yaml"), s.Path("deploy/daemonset/15-policies.yaml"),
		s.Path("deploy/controller/10-rights.yaml"))
}

// Path is the absolute path of a file of the checkout.
func (s *Stack) Path(name string) string { return filepath.Join(s.root, name) }

// Program is the path of a program that `make build` built.
func (s *Stack) Program(name string) string { return s.Path("bin/" + name) }

// Node returns the node of that name.
func (s *Stack) Node(name string) *Node {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	panic("no node " + name)
}

// Stop takes everything down.
func (s *Stack) Stop() error {
	s.KillController()
	var errs []error
	for _, n := range s.Nodes {
		if n != nil {
			errs = append(errs, n.stop())
		}
	}
	if s.ControlPlane != nil {
		errs = append(errs, s.ControlPlane.Stop())
	}
	return errors.Join(errs...)
}

// LastWords is the end of what the controller and the agents said.
func (s *Stack) LastWords(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if s.controller != nil {
		text += "controller:\n" + s.controller.logTail() + "\n"
	}
	for _, n := range s.Nodes {
		if n != nil {
			text += n.lastWords(ctx)
		}
	}
	return text
}
