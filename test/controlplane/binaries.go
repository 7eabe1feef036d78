package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/fettle-dev/fettle/test/cache"
)

// programs are the programs and the packages they are built from, all of the module in binaries/.
var programs = []struct{ name, pkg string }{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
}

// Binaries returns the folder that holds etcd and the Kubernetes programs (kube-apiserver, kube-controller-manager,
// kube-scheduler, kubelet, kube-proxy, kubectl). When the pinned versions are not in the cache it builds them, which
// takes about 11 minutes on two cores, and says so on log.
func Binaries(ctx context.Context, log io.Writer) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "test", "controlplane", "binaries")
	key, err := versionKey(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", err
	}
	return cache.Get(ctx, "controlplane", key, func(ctx context.Context, dir string) error {
		_, _ = fmt.Fprintf(log, "building etcd and the Kubernetes programs, %s (once; about 11 minutes on two cores)\n", key)
		for _, program := range programs {
			_, _ = fmt.Fprintf(log, "  %s\n", program.name)
			cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, program.name), program.pkg)
			cmd.Dir, cmd.Stdout, cmd.Stderr = module, log, log
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("build %s in %s: %w", program.pkg, module, errors.Join(err, ctx.Err()))
			}
		}
		return nil
	})
}

var (
	kubernetesVersion = regexp.MustCompile(`(?m)^(?:require)?\s*k8s\.io/kubernetes (v\S+)`)
	etcdVersion       = regexp.MustCompile(`(?m)^(?:require)?\s*go\.etcd\.io/etcd/server/v3 (v\S+)`)
)

func versionKey(gomod string) (string, error) {
	text, err := os.ReadFile(gomod)
	if err != nil {
		return "", fmt.Errorf("read the pinned versions: %w", err)
	}
	kubernetes, etcd := kubernetesVersion.FindSubmatch(text), etcdVersion.FindSubmatch(text)
	if kubernetes == nil || etcd == nil {
		return "", fmt.Errorf("read the pinned versions: %s requires no k8s.io/kubernetes or no go.etcd.io/etcd/server/v3", gomod)
	}
	return fmt.Sprintf("kubernetes-%s-etcd-%s", kubernetes[1], etcd[1]), nil
}
