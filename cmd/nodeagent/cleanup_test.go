package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	for _, tc := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{name: "without a cluster there is nothing to withdraw", want: 0, says: "no cluster is configured"},
		{name: "with one that does not answer nobody knows", args: []string{"--kubeconfig", nowhere}, want: 2, says: "127.0.0.1:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRootCommand()
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(append([]string{"cleanup", "--state-dir", filepath.Join(t.TempDir(), "none"), "--node-name", "n"}, tc.args...))
			if code := execute(t.Context(), root); code != tc.want || !strings.Contains(out.String(), tc.says) {
				t.Errorf("exit status %d, %q", code, out.String())
			}
		})
	}
}
