package stack

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fettle-dev/fettle/test/process"
)

type controllerProcess = process.Process

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
	p, err := process.Start(process.Spec{Command: append(args, s.opts.ControllerArgs...), Log: filepath.Join(s.ControlPlane.Dir(), "controller.log"), Env: os.Environ()})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = p
	return nil
}

// KillController kills the controller with SIGKILL.
func (s *Stack) KillController() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil {
		s.controller.Kill()
		s.controller = nil
	}
}

// StopController stops the controller as a shutdown does.
func (s *Stack) StopController() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil {
		s.controller.Stop(10 * time.Second)
		s.controller = nil
	}
}
