package config

import (
	"bytes"
	"strings"
	"testing"
)

// Whatever a file says, it is refused with places, or printing it gives the same configuration again.
func FuzzPrint(f *testing.F) {
	for _, seed := range []string{
		printedFile, "checks: [{name: a, kind: exec, command: [' a', \"b\\n\"], nested: {urlPath: '#'}}]\n", "checks: [{name: disk, dependsOn: []}, {name: disk-space, flapping: {changes: 0}}]\n",
		"checks: [{name: exec}]\n", "checks: [{name: a, kind: exec, environment: [{name: a}, {}]}]\n", "kubeconfig: \"\\0\\u2028\"\n", "checks: [{kind: exec, name: a, dependsOn: [b]}, {kind: exec, name: b, dependsOn: [a]}]\n",
		"checks: [{name: disk, limit: 0x10}, {name: disk-space, limit: 1e3}]\n", "checks: [{name: a, kind: exec, codes: [0o17, 0x1f, 1_0]}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse("f.yaml", content, testKinds)
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.yaml") {
					t.Errorf("a fault without its place: %q", line)
				}
			}
			return
		}
		var out bytes.Buffer
		if err := (Effective{Config: c, source: func(string) string { return "" }}).WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", out.Bytes(), testKinds)
		if err != nil {
			if len(out.Bytes()) > maxSize {
				return // a value of many bytes takes more when it is printed
			}
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, key := range again.Changes(c) {
			if !strings.HasSuffix(key, "].token") && !strings.HasSuffix(key, "].environment") { // secrets
				t.Errorf("%s changed in\n%s", key, out.String())
			}
		}
	})
}
