package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// sandboxTag is the image of pods' sandboxes in guest/etc/containerd/config.toml.
const sandboxTag = "fettle.dev/pause:dev"

// Program is a Go program of the checkout that becomes an image.
type Program struct {
	Tag     string // of the image, for example fettle.dev/nodeagent:dev
	Package string // relative to the checkout, for example ./cmd/nodeagent
	Path    string // in the image, for example /usr/bin/nodeagent; the entrypoint
	User    string // user:group by number; empty is root
}

// Image builds a program statically and puts it into an image of its own, as `make image` does. It returns the path
// of the tarball, which lies in dir, for Options.Images.
func Image(ctx context.Context, dir string, program Program) (string, error) {
	checkout, err := controlplane.RepoRoot()
	if err != nil {
		return "", err
	}
	name := strings.NewReplacer("/", "-", ":", "-").Replace(program.Tag)
	binary, tarball := filepath.Join(dir, name), filepath.Join(dir, name+".tar")
	if err := goCommand(ctx, checkout, "build", "-trimpath", "-ldflags=-s -w", "-o", binary, program.Package); err != nil {
		return "", err
	}
	err = goCommand(ctx, filepath.Join(checkout, "tools"), "run", "./image",
		"--output", tarball, "--tag", program.Tag, "--file", binary+"="+program.Path, "--entrypoint", program.Path, "--user", program.User)
	return tarball, errors.Join(err, os.Remove(binary))
}

func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, printed)
	}
	return nil
}
