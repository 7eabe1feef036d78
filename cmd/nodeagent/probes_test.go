package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The page is made by `make generate` from the tables; this holds it against them.
func TestThePageOfChecksIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetArgs([]string{"probes", "describe"})
	if code := execute(t.Context(), root); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	if !strings.HasSuffix(string(page), out.String()) {
		t.Error("docs/reference/checks.md is not what `nodeagent probes describe` prints; run make generate")
	}
}

func TestDescribeNamesTheChecksThereAre(t *testing.T) {
	var faults bytes.Buffer
	root := newRootCommand()
	root.SetErr(&faults)
	root.SetArgs([]string{"probes", "describe", "gpu"})
	if code := execute(t.Context(), root); code != 2 || !strings.Contains(faults.String(), "cni-config") {
		t.Errorf("exit status %d, %q", code, faults.String())
	}
}
