package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/await"
)

// What it withdraws from a real API server is tested in internal/agent.
func TestCleanupEndsWithWhatIsLeft(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(nowhere, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(broken, []byte("kubeconfig: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want int
		// never is what would contradict it.
		says, never string
	}{
		{name: "without a cluster there is nothing to withdraw", want: 0, says: "no cluster is configured"},
		{name: "with one that does not answer nobody knows", args: []string{"--kubeconfig", nowhere}, want: 2, says: "127.0.0.1:1"},
		{name: "with a broken configuration nobody knows whether there was one", args: []string{"--config", broken}, want: 2, says: "name the agent's kubeconfig with --kubeconfig", never: "as a whole"},
		{name: "a broken configuration keeps nobody from one that is named", args: []string{"--config", broken, "--kubeconfig", nowhere}, want: 2, says: "127.0.0.1:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRootCommand()
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(append([]string{"cleanup", "--state-dir", filepath.Join(t.TempDir(), "none"), "--node-name", "n"}, tc.args...))
			if code := execute(t.Context(), root); code != tc.want || !strings.Contains(out.String(), tc.says) || tc.never != "" && strings.Contains(out.String(), tc.never) {
				t.Errorf("exit status %d, %q", code, out.String())
			}
		})
	}
}

// The last valid file, which the agent kept, says what was meant by one that is broken since.
func TestCleanupGoesByTheLastValidConfiguration(t *testing.T) {
	dir := t.TempDir()
	state, file := filepath.Join(dir, "state"), filepath.Join(dir, "nodeagent.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kubeconfig: " + filepath.Join(dir, "gone") + "\nendpoints: {socket: \"\", statusFile: \"\"}\n")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	root := newRootCommand()
	root.SetErr(io.Discard)
	root.SetArgs([]string{"run", "--config", file, "--state-dir", state, "--node-name", "n", "--host-root", t.TempDir()})
	go func() { ended <- execute(ctx, root) }()
	await.That(t, "the agent keeps its configuration", func() bool {
		_, err := os.Stat(filepath.Join(state, "last-good-nodeagent.json"))
		return err == nil
	})
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("the agent ended with %d", code)
	}
	write("kubeconfig: [\n")
	_, stderr, code := run(t, "cleanup", "--config", file, "--state-dir", state, "--node-name", "n")
	if code != 2 || !strings.Contains(stderr, filepath.Join(dir, "gone")) || !strings.Contains(stderr, "not in force as it stands") || !strings.Contains(stderr, "in force: the last valid file") {
		t.Errorf("exit status %d, %q", code, stderr)
	}
}
