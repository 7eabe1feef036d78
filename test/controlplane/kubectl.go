package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Kubectl runs the real kubectl as the admin and returns its standard output; the error carries its standard error.
// Another --kubeconfig among args overrides the admin's.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary("kubectl"), append([]string{"--cache-dir=" + c.folder.Join("kubectl-cache")}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(faults.String()))
	}
	return out.String(), nil
}

// Apply applies files or folders of manifests as `kubectl apply --server-side -f` does, and waits until the CRDs
// among them are Established.
func (c *ControlPlane) Apply(ctx context.Context, paths ...string) error {
	args := []string{"apply", "--server-side", "--output=name"}
	for _, path := range paths {
		args = append(args, "--filename="+path)
	}
	out, err := c.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	var definitions []string
	for _, name := range strings.Fields(out) {
		if strings.HasPrefix(name, "customresourcedefinition.apiextensions.k8s.io/") {
			definitions = append(definitions, name)
		}
	}
	if len(definitions) == 0 {
		return nil
	}
	_, err = c.Kubectl(ctx, append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, definitions...)...)
	return err
}

// awaitDefaultServiceAccount waits for what the controller manager makes first and pods cannot do without.
func (c *ControlPlane) awaitDefaultServiceAccount(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("wait for the controller manager: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startLimit, true, func(ctx context.Context) (bool, error) {
		_, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, c.controllerManager.Failure()
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the controller manager to make ServiceAccount default/default: %w", err)
	}
	return nil
}
