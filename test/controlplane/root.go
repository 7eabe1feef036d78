package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var moduleLine = regexp.MustCompile(`(?m)^module github\.com/fettle-dev/fettle$`)

// RepoRoot is the absolute path of the checkout, found from the working folder upwards (go test runs in the
// package's folder).
func RepoRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine.Match(text) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the checkout: no go.mod of github.com/fettle-dev/fettle in %s or above; run it inside the checkout", start)
		}
	}
}
