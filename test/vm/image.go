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
	Package string // for Image: relative to the checkout, for example ./cmd/nodeagent
	Path    string // in the image, for example /usr/bin/nodeagent; the entrypoint
	User    string // user:group by number; empty is root
}

// Image builds a program statically and packs it. It returns the path of the tarball, which lies in dir, for
// Options.Images.
func Image(ctx context.Context, dir string, program Program) (string, error) {
	checkout, err := controlplane.RepoRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, program.fileName())
	if err := goCommand(ctx, checkout, "build", "-trimpath", "-ldflags=-s -w", "-o", binary, program.Package); err != nil {
		return "", err
	}
	tarball, err := Pack(ctx, dir, binary, program)
	return tarball, errors.Join(err, os.Remove(binary))
}

// Pack puts a static binary that is built already into an image of its own, as `make image` does. It returns the path
// of the tarball, which lies in dir, for Options.Images.
func Pack(ctx context.Context, dir, binary string, program Program) (string, error) {
	checkout, err := controlplane.RepoRoot()
	if err != nil {
		return "", err
	}
	tarball := filepath.Join(dir, program.fileName()+".tar")
	return tarball, goCommand(ctx, filepath.Join(checkout, "tools"), "run", "./image",
		"--output", tarball, "--tag", program.Tag, "--file", binary+"="+program.Path, "--entrypoint", program.Path, "--user", program.User)
}

func (p Program) fileName() string { return strings.NewReplacer("/", "-", ":", "-").Replace(p.Tag) }

func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, printed)
	}
	return nil
}
