package stack

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/test/process"
)

// controllerProcess is the controller under a supervisor that starts it again when it ends by itself, as a kubelet or
// systemd would: a leader that cannot renew its lease ends.
type controllerProcess struct {
	spec process.Spec

	mu      sync.Mutex
	current *process.Process
	over    chan struct{} // closed when it is not to be started again
}

// restartDelay is between an end and the next start.
const restartDelay = time.Second

// StartController starts the controller with the identity its manifests give it.
func (s *Stack) StartController() error {
	kubeconfig, err := s.ControlPlane.KubeconfigFor("system:serviceaccount:fettle-system:controller", "system:serviceaccounts", "system:serviceaccounts:fettle-system")
	if err != nil {
		return err
	}
	args := []string{
		s.Program("controller"), "--kubeconfig=" + kubeconfig, "--leader-elect=true", "--leader-election-namespace=fettle-system",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}
	c := &controllerProcess{
		spec: process.Spec{Command: append(args, s.opts.ControllerArgs...), Log: filepath.Join(s.ControlPlane.Dir(), "controller.log"), Env: os.Environ()},
		over: make(chan struct{}),
	}
	if err := c.start(); err != nil {
		return err
	}
	go c.supervise()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = c
	return nil
}

// KillController kills the controller with SIGKILL.
func (s *Stack) KillController() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil {
		s.controller.kill()
		s.controller = nil
	}
}

func (c *controllerProcess) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.over:
		return nil
	default:
	}
	p, err := process.Start(c.spec)
	if err == nil {
		c.current = p
	}
	return err
}

func (c *controllerProcess) supervise() {
	for {
		c.mu.Lock()
		p := c.current
		c.mu.Unlock()
		select {
		case <-c.over:
			return
		case <-p.Done():
		}
		select {
		case <-c.over:
			return
		case <-time.After(restartDelay):
		}
		_ = c.start() // when it fails the old one is still done, and the next round tries again
	}
}

func (c *controllerProcess) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.over)
	c.current.Kill()
}

func (c *controllerProcess) logTail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.LogTail()
}
