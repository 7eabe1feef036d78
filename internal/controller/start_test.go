package controller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/process"
)

// TestStart starts the real program before anything that it needs is there.
func TestStart(t *testing.T) {
	program := build(t)
	t.Run("without a kubeconfig it says which, and ends", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), program, "--kubeconfig=/nonexistent/kubeconfig")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "/nonexistent/kubeconfig") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("bad flags are all named at once", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), program, "--concurrency=0", "--host-lifecycle-grace-period=-1s", "--leader-elect", "--leader-election-namespace=")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), "must be") != 3 {
			t.Errorf("%v: %s", err, out)
		}
	})

	c := controlplane.ForTest(t, controlplane.Options{})
	c.StopAPIServer()
	log := filepath.Join(t.TempDir(), "log")
	address := "127.0.0.1:18085"
	p, err := process.Start(process.Spec{
		Command: []string{program, "--kubeconfig=" + c.Kubeconfig(), "--health-probe-bind-address=" + address},
		Log:     log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	w := &world{ControlPlane: c}
	probe := func(t *testing.T, path string, want int) {
		t.Helper()
		w.eventually(t, fmt.Sprintf("%s answers %d", path, want), func() (bool, string) {
			status, body, err := get(t.Context(), "http://"+address+path)
			if failure := p.Failure(); failure != nil {
				t.Fatal(failure)
			}
			return err == nil && status == want, fmt.Sprint(status, body, err)
		})
	}
	says := func(t *testing.T, what string) {
		t.Helper()
		w.eventually(t, "the log says "+what, func() (bool, string) { return strings.Contains(p.LogTail(), what), p.LogTail() })
	}
	t.Run("while the API server is away it lives, is not ready, and says why", func(t *testing.T) {
		probe(t, "/healthz", http.StatusOK)
		probe(t, "/readyz", http.StatusInternalServerError)
		says(t, "connection refused")
	})
	t.Run("while the custom resources are missing it says what to apply", func(t *testing.T) {
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		says(t, "apply deploy/crds")
		probe(t, "/healthz", http.StatusOK)
		probe(t, "/readyz", http.StatusInternalServerError)
	})
	t.Run("then it begins by itself, and makes the namespaces that it may make", func(t *testing.T) {
		if err := c.Apply(t.Context(), "../../deploy/crds"); err != nil {
			t.Fatal(err)
		}
		probe(t, "/readyz", http.StatusOK)
		scheme, err := newScheme()
		if err != nil {
			t.Fatal(err)
		}
		if w.WithWatch, err = client.NewWithWatch(c.Config(), client.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
		if err := w.Get(t.Context(), client.ObjectKey{Name: "fettle-node-lease"}, &corev1.Namespace{}); err != nil {
			t.Error(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "start"}}}
		if err := w.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		w.rule(t, "start", "start")
		w.tainted(t, "n", "r.example.com/start=pending:NoSchedule")
	})
	t.Run("after the API server was away for a moment it catches up", func(t *testing.T) {
		c.StopAPIServer()
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.condition(t, "n", network, "True")
		w.tainted(t, "n")
		if failure := p.Failure(); failure != nil {
			t.Error(failure)
		}
	})
	t.Run("it ends by itself when asked to", func(t *testing.T) {
		p.Signal(syscall.SIGTERM)
		if code := p.ExitCode(); code != 0 {
			t.Errorf("exit status %d\n%s", code, p.LogTail())
		}
	})
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}
