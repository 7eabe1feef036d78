// Command decodable narrows the schemas of the CRDs in a folder to what the Go types of the fields can decode.
//
// What controller-gen writes for times, integers and quantities lets values through that Go refuses, e.g. a time with a
// lower-case t. One stored object with such a value makes every list of its kind fail in every typed client, so the API
// server has to refuse it. Markers cannot say so for fields of types that are not ours, such as metav1.Condition.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: decodable FOLDER")
		os.Exit(2)
	}
	if err := narrowFolder(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func narrowFolder(folder string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list the CRDs: %w", err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		narrowed, err := narrowCRD(content)
		if err != nil {
			return fmt.Errorf("narrow %s: %w", path, err)
		}
		if err := os.WriteFile(path, narrowed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// narrowCRD returns the CRD in the form that controller-gen writes.
func narrowCRD(content []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return nil, err
	}
	narrow(crd)
	narrowed, err := yaml.Marshal(crd)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), narrowed...), nil
}
