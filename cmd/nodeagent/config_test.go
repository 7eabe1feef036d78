package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func TestConfigValidateReadsStandardInput(t *testing.T) {
	for _, tc := range []struct {
		file, stdout, stderr string
		code                 int
	}{
		{file: "log: {level: warn}\n", stdout: "- is valid\n"},
		{file: "log: {level: loud}\nfoo: 1\n", code: 2, stderr: `nodeagent: standard input:1: log.level: "loud" is not one of the allowed values (allowed: debug, info, warn, error)
standard input:2: foo: unknown key "foo" (allowed: nodeName, kubeconfig, stateDir, hostRoot, heartbeat, log, endpoints, checks)
`},
	} {
		var out, errs bytes.Buffer
		root := newRootCommand()
		root.SetArgs([]string{"config", "validate", "-"})
		root.SetIn(strings.NewReader(tc.file))
		root.SetOut(&out)
		root.SetErr(&errs)
		if code := execute(t.Context(), root); code != tc.code || out.String() != tc.stdout || errs.String() != tc.stderr {
			t.Errorf("%d %q\n%s", code, out.String(), errs.String())
		}
	}
}

// Without a file named, what run would go by counts: a reload of the unit asks so.
func TestConfigValidateWithoutAFile(t *testing.T) {
	good := configFile(t, "")
	t.Setenv("FETTLE_LOG_LEVEL", "debug")
	if stdout, stderr, code := run(t, "config", "validate", "--config", good); code != 0 || stdout != good+", environment and flags are valid\n" {
		t.Errorf("%d %q %s", code, stdout, stderr)
	}
	t.Setenv("FETTLE_LOG_LVEL", "debug")
	stdout, stderr, code := run(t, "config", "validate", "--config", good, "--log-format", "xml")
	if code != 2 || stdout != "" || !strings.Contains(stderr, `did you mean "FETTLE_LOG_LEVEL"?`) || !strings.Contains(stderr, "flag --log-format: ") {
		t.Errorf("%d %q %s", code, stdout, stderr)
	}
	if stdout, stderr, code := run(t, "config", "validate", good); code != 0 || stdout != good+" is valid\n" {
		t.Errorf("a file is not checked alone: %d %q %s", code, stdout, stderr)
	}
	if _, stderr, code := run(t, "config", "validate", "--log-format", "text", good); code != 64 || !strings.Contains(stderr, "FILE is checked alone") {
		t.Errorf("%d %s", code, stderr)
	}
}

// Of every kind of check there is, what is printed is a configuration that is the same again.
func TestConfigPrintIsAConfiguration(t *testing.T) {
	path := configFile(t, `- {name: raid, kind: exec, command: [/usr/bin/raid, --all], reason: RaidBroken, condition: example.com/Raid}
- {name: api, kind: http, url: "https://127.0.0.1/", status: ["200-204", "301"], body: "^ok: \\d+$", dependsOn: [default-route]}
- {name: registry, kind: tcp, address: "127.0.0.1:5000"}
- {name: stamp, kind: file, path: /run/stamp, maxAge: 1h, minSize: 4Ki, content: "a # b"}
`)
	t.Setenv("FETTLE_CHECKS_CNI_CONFIG_BIN_DIRS", "/a,/b")
	t.Setenv("FETTLE_CHECKS_API_STATUS", "200-204,418")
	stdout, stderr, code := run(t, "config", "print", "--config", path, "--heartbeat-interval", "11s")
	if code != 0 || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	for _, line := range []string{"  interval: 11s # flag --heartbeat-interval\n", "  binDirs: [/a, /b] # environment FETTLE_CHECKS_CNI_CONFIG_BIN_DIRS\n", "nodeName: worker-1 # " + path + ":1\n"} {
		if !strings.Contains(stdout, line) {
			t.Errorf("%q is not in\n%s", line, stdout)
		}
	}
	printed := filepath.Join(t.TempDir(), "printed.yaml")
	if err := os.WriteFile(printed, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := run(t, "config", "validate", printed); code != 0 {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	again, err := config.LoadFile(printed, catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	before, err := config.LoadFile(path, catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	if changed := strings.Join(again.Changes(before), " "); changed != "heartbeat.interval checks[cni-config].binDirs checks[api].status" {
		t.Errorf("changed: %s", changed)
	}
}

func TestConfigPrintAsJSON(t *testing.T) {
	stdout, stderr, code := run(t, "config", "print", "--config", configFile(t, ""), "-o", "json")
	var out struct{ Keys []struct{ Key string } }
	if err := json.Unmarshal([]byte(stdout), &out); code != 0 || err != nil || len(out.Keys) < 100 {
		t.Errorf("%d keys, %d, %v, %s", len(out.Keys), code, err, stderr)
	}
}

func TestConfigPrintRefuses(t *testing.T) {
	t.Setenv("FETTLE_LOG_LEVL", "debug")
	stdout, stderr, code := run(t, "config", "print", "--config", configFile(t, ""), "--log-format", "xml")
	if code != 2 || stdout != "" || !strings.Contains(stderr, `did you mean "FETTLE_LOG_LEVEL"?`) || !strings.Contains(stderr, "flag --log-format: ") {
		t.Errorf("%d %q %s", code, stdout, stderr)
	}
	if _, stderr, code := run(t, "config", "print", "-o", "toml"); code != 2 || stderr != "nodeagent: flag --output: \"toml\" is not a form of output (allowed: yaml, json)\n" {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestConfigDocsNameEveryCheck(t *testing.T) {
	stdout, _, code := run(t, "config", "docs")
	if code != 0 {
		t.Fatal(code)
	}
	for _, k := range catalogue.Kinds() {
		if !strings.Contains(stdout, "\n### "+k.Name+"\n") {
			t.Errorf("%s is missing", k.Name)
		}
	}
}

// An item that a variable sets is where the variable is, also where the file has the list too.
func TestFaultsOfItemsOfAVariable(t *testing.T) {
	path := configFile(t, `- {name: raid, kind: exec, command: [/bin/true], env: [A=b, C=d]}
- {name: api, kind: http, url: "http://a/", headers: ["A: b"], dependsOn: [raid]}
`)
	t.Setenv("FETTLE_CHECKS_RAID_ENV", "A=b,bad")
	t.Setenv("FETTLE_CHECKS_API_HEADERS", `["A: b", "x"]`)
	t.Setenv("FETTLE_CHECKS_API_DEPENDS_ON", "raid,nope")
	_, stderr, code := run(t, "config", "print", "--config", path)
	for _, want := range []string{
		"environment FETTLE_CHECKS_RAID_ENV: checks[raid].env[1]: is not of the form NAME=value",
		"environment FETTLE_CHECKS_API_HEADERS: checks[api].headers[1]: is not a header",
		`environment FETTLE_CHECKS_API_DEPENDS_ON: checks[api].dependsOn[1]: unknown check "nope"`,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	if lines := strings.Count(stderr, "\n"); code != 2 || lines != 3 {
		t.Errorf("exit status %d, %d lines:\n%s", code, lines, stderr)
	}
}
