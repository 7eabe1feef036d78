package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestReadme runs every command of the README, in its order, in a fresh clone, against a real API server.
func TestReadme(t *testing.T) {
	root, err := controlplane.RepoRoot()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	commands, config := readReadme(string(text))
	if len(commands) < 8 {
		t.Fatalf("found only %d commands: %v", len(commands), commands)
	}
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true})
	_, err = c.Kubectl(t.Context(), "create", "-f", writeNode(t, "gpu-17"))
	must(t, err)
	work := t.TempDir()
	etc := filepath.Join(work, "etc")

	// The two places in which a reader's machine is not this one.
	here := strings.NewReplacer(
		"https://github.com/fettle-dev/fettle", root+" fettle",
		"/etc/fettle", etc,
	)
	folder := work
	for _, command := range commands {
		if command == "make run" { // the shape of what it prints is looked at below
			continue
		}
		t.Run(command, func(t *testing.T) {
			if strings.Contains(command, "nodeagent.yaml") { // which the reader has written into the folder by now
				must(t, os.WriteFile(filepath.Join(etc, "nodeagent.yaml"), []byte(config), 0o644))
			}
			out, err := shell(t.Context(), c, folder, here.Replace(command))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
		})
		if strings.HasPrefix(command, "git clone") {
			folder = filepath.Join(work, "fettle")
		}
	}

	t.Run("make run", func(t *testing.T) {
		out, err := shell(t.Context(), c, folder, "make run")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, column := range []string{"CHECK", "CONDITION", "VERDICT", "REASON", "MESSAGE"} {
			if !strings.Contains(strings.SplitN(out, "\n", 2)[0], column) {
				t.Errorf("no column %s in\n%s", column, out)
			}
		}
		for _, check := range []string{"cni-config", "service-proxy", "root-filesystem"} {
			if !strings.Contains(out, "\n"+check) {
				t.Errorf("no %q in\n%s", check, out)
			}
		}
		if !strings.Contains(out, "\nhealthy: ") && !strings.Contains(out, "\ndegraded: ") {
			t.Errorf("no summary in\n%s", out)
		}
	})
}

// TestThePageOnDaemonSets runs its commands, in their order; what they do on a machine, test/e2e/daemonset looks at.
func TestThePageOnDaemonSets(t *testing.T) {
	root, err := controlplane.RepoRoot()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/daemonset.md"))
	must(t, err)
	commands, _ := readReadme(string(text))
	if len(commands) < 6 {
		t.Fatalf("found only %d commands: %v", len(commands), commands)
	}
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true})
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			out, err := shell(t.Context(), c, root, command)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
		})
	}
}

// writeNode writes the manifest of a Node that the README's reader has.
func writeNode(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Node\nmetadata:\n  name: "+name+"\n"), 0o644))
	return path
}

// readReadme gives the commands after "$ ", and the example configuration.
func readReadme(text string) (commands []string, config string) {
	inConfig := false
	for line := range strings.Lines(text) {
		code, isCode := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		command, isCommand := strings.CutPrefix(code, "$ ")
		switch {
		case isCode && isCommand:
			commands = append(commands, command)
		case isCode && code == "# /etc/fettle/nodeagent.yaml":
			inConfig = true
		case !isCode:
			inConfig = false
		case inConfig:
			config += code + "\n"
		}
	}
	return commands, config
}

func shell(ctx context.Context, c *controlplane.ControlPlane, dir, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euc", command)
	cmd.Dir = dir
	// A reader's make is not called by another one, as this test's may be.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MAKELEVEL=") || strings.HasPrefix(v, "MFLAGS=")
	})
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.Kubeconfig(), "PATH="+c.BinDir()+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
