package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// run executes the command line as the process would.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = execute(t.Context(), root)
	return out.String(), errs.String(), code
}

// hostRoot makes a machine's root; a file whose name begins with "opt/cni/bin/" is executable.
func hostRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path, mode := filepath.Join(root, name), os.FileMode(0o644)
		if strings.HasPrefix(name, "opt/cni/bin/") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// configFile leaves the fill of the disk that the test runs on out of the verdict.
func configFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	content := `nodeName: worker-1
checks:
- name: root-filesystem
  spaceDegradedPercent: 0
  spaceFatalPercent: 0
  inodesDegradedPercent: 0
  inodesFatalPercent: 0
` + more
	for _, k := range catalogue.Kinds() { // the others look at this machine, whatever the root
		if !k.Template && !slices.Contains([]string{"cni-config", "service-proxy", "root-filesystem"}, k.Name) {
			content += "- name: " + k.Name + "\n  disabled: true\n"
		}
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func bridge(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"etc/cni/net.d/10-bridge.conflist": `{"name": "podnet", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}]}`,
		"opt/cni/bin/bridge":               "\x7fELF",
		"opt/cni/bin/host-local":           "\x7fELF",
	}
}

func TestCheckTable(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := bridge(t)
	delete(broken, "opt/cni/bin/bridge")
	for _, tc := range []struct {
		name  string
		files map[string]string
		more  string
		code  int
		want  string
	}{
		{name: "healthy", files: bridge(t), want: `
CHECK            CONDITION                VERDICT        REASON         MESSAGE
cni-config       fettle.dev/NetworkReady  ok             OK             network "podnet" of /etc/cni/net.d/10-bridge.conflist has its plugins
service-proxy    fettle.dev/NetworkReady  notApplicable  NotApplicable  no service address is configured or in the environment
root-filesystem  fettle.dev/StorageReady  ok             OK             / is writable and has space and inodes left

healthy: 2 ok, 1 not applicable
`},
		{name: "unhealthy", files: broken, code: 1, want: `
CHECK            CONDITION                VERDICT        REASON            MESSAGE
cni-config       fettle.dev/NetworkReady  fatal          CNIPluginMissing  /etc/cni/net.d/10-bridge.conflist needs bridge, not found in /opt/cni/bin, /usr/lib/cni
service-proxy    fettle.dev/NetworkReady  notApplicable  NotApplicable     no service address is configured or in the environment
root-filesystem  fettle.dev/StorageReady  ok             OK                / is writable and has space and inodes left

unhealthy: 1 fatal, 1 ok, 1 not applicable
`},
		{name: "nothing applies", more: "  disabled: true\n", want: `
CHECK          CONDITION                VERDICT        REASON         MESSAGE
cni-config     fettle.dev/NetworkReady  notApplicable  NotApplicable  neither /etc/cni/net.d nor /var/lib/kubelet exists
service-proxy  fettle.dev/NetworkReady  notApplicable  NotApplicable  no service address is configured or in the environment

healthy: 2 not applicable
`},
		{name: "something could not be looked at", more: "  path: /missing\n", code: 2, want: `
CHECK            CONDITION                VERDICT        REASON                MESSAGE
cni-config       fettle.dev/NetworkReady  notApplicable  NotApplicable         neither /etc/cni/net.d nor /var/lib/kubelet exists
service-proxy    fettle.dev/NetworkReady  notApplicable  NotApplicable         no service address is configured or in the environment
root-filesystem  fettle.dev/StorageReady  unknown        FilesystemUnreadable  stat /missing: no such file or directory

unknown: 1 unknown, 2 not applicable
`},
		{name: "fatal counts for more than unknown", files: broken, more: "  path: /missing\n- name: service-proxy\n  disabled: true\n", code: 1, want: `
CHECK            CONDITION                VERDICT  REASON                MESSAGE
cni-config       fettle.dev/NetworkReady  fatal    CNIPluginMissing      /etc/cni/net.d/10-bridge.conflist needs bridge, not found in /opt/cni/bin, /usr/lib/cni
root-filesystem  fettle.dev/StorageReady  unknown  FilesystemUnreadable  stat /missing: no such file or directory

unhealthy: 1 fatal, 1 unknown
`},
		// More free space is asked for than any disk has.
		{name: "degraded is healthy for the exit status", more: "  spaceDegradedBytes: 1048576Ti\n- name: service-proxy\n  disabled: true\n- name: cni-config\n  disabled: true\n", want: `
CHECK            CONDITION                VERDICT   REASON    MESSAGE
root-filesystem  fettle.dev/StorageReady  degraded  SpaceLow  /: less than 1048576Ti of space is free

degraded: 1 degraded
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := run(t, "check", "--host-root", hostRoot(t, tc.files), "--config", configFile(t, tc.more))
			if code != tc.code || stderr != "" {
				t.Errorf("exit status %d, want %d; stderr %q", code, tc.code, stderr)
			}
			if want := strings.TrimPrefix(tc.want, "\n"); stdout != want {
				t.Errorf("got\n%s\nwant\n%s", stdout, want)
			}
		})
	}
}

func TestCheckJSONAndYAMLSayTheSame(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := bridge(t)
	broken["etc/cni/net.d/10-bridge.conflist"] = ""
	root, config := hostRoot(t, broken), configFile(t, "")
	want := `{
  "node": "worker-1",
  "time": "TIME",
  "status": "Unhealthy",
  "counts": {
    "ok": 1,
    "degraded": 0,
    "fatal": 1,
    "unknown": 0,
    "notApplicable": 1
  },
  "checks": [
    {
      "name": "cni-config",
      "condition": "fettle.dev/NetworkReady",
      "verdict": "fatal",
      "reason": "CNIConfigInvalid",
      "message": "/etc/cni/net.d/10-bridge.conflist: the file is empty"
    },
    {
      "name": "service-proxy",
      "condition": "fettle.dev/NetworkReady",
      "verdict": "notApplicable",
      "reason": "NotApplicable",
      "message": "no service address is configured or in the environment"
    },
    {
      "name": "root-filesystem",
      "condition": "fettle.dev/StorageReady",
      "verdict": "ok",
      "reason": "OK",
      "message": "/ is writable and has space and inodes left"
    }
  ],
  "conditions": [
    {
      "type": "fettle.dev/Healthy",
      "status": "False",
      "reason": "CNIConfigInvalid",
      "message": "cni-config (CNIConfigInvalid)"
    },
    {
      "type": "fettle.dev/NetworkReady",
      "status": "False",
      "reason": "CNIConfigInvalid",
      "message": "cni-config: /etc/cni/net.d/10-bridge.conflist: the file is empty"
    },
    {
      "type": "fettle.dev/StorageReady",
      "status": "True",
      "reason": "OK",
      "message": "well: root-filesystem"
    }
  ]
}
`
	asJSON, _, code := run(t, "check", "--host-root", root, "--config", config, "--output", "json")
	if got := regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`).ReplaceAllString(asJSON, `"TIME"`); got != want || code != 1 {
		t.Errorf("exit status %d, got\n%s\nwant\n%s", code, got, want)
	}
	asYAML, _, code := run(t, "check", "--host-root", root, "--config", config, "-o", "yaml")
	if code != 1 {
		t.Errorf("exit status %d", code)
	}
	var fromJSON, fromYAML pass
	if err := json.Unmarshal([]byte(asJSON), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(asYAML), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if fromJSON.Time.IsZero() || fromYAML.Time.IsZero() {
		t.Errorf("times %s and %s", fromJSON.Time, fromYAML.Time)
	}
	if fromYAML.Time = fromJSON.Time; !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Errorf("json %+v\nyaml %+v", fromJSON, fromYAML)
	}
}

func TestCheckThatCannotBegin(t *testing.T) {
	bad := configFile(t, "- name: cni-config\n  interval: soon\n  color: red\n")
	for _, tc := range []struct {
		name string
		args []string
		code int      // 0: 2
		says []string // lines of stderr
	}{
		{name: "bad configuration", args: []string{"check", "--config", bad}, says: []string{
			"nodeagent: " + bad + `:9: checks[cni-config].interval: "soon" is not a duration (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, from 1s to 24h)`,
			bad + `:10: checks[cni-config].color: unknown key "color" (allowed: name, kind, condition, disabled, dryRun, severity, interval, timeout, failureThreshold, successThreshold, minHold, flapping, staleAfter, clearing, dependsOn, configDir, binDirs, required)`}},
		{name: "configuration that is not there", args: []string{"check", "--config", "/nowhere.yaml"}, says: []string{"nodeagent: read configuration: open /nowhere.yaml: no such file or directory"}},
		{name: "root that is not there", args: []string{"check", "--host-root", "/nowhere", "--config", configFile(t, "")}, says: []string{"nodeagent: open host root: open /nowhere: no such file or directory"}},
		{name: "form of output", args: []string{"check", "-o", "xml"}, says: []string{`nodeagent: flag --output: "xml" is not a form of output (allowed: table, json, yaml)`}},
		{name: "neither socket nor file", args: []string{"status", "--socket=", "--status-file="}, code: 64, says: []string{"nodeagent: flags --socket and --status-file are both empty, so that there is nothing to ask; name what endpoints.socket or endpoints.statusFile of the agent's configuration names"}},
		{name: "unknown flag", args: []string{"check", "--colour"}, code: 64, says: []string{"nodeagent: unknown flag: --colour"}},
		{name: "argument", args: []string{"check", "disk"}, code: 64, says: []string{`nodeagent: unknown command "disk" for "nodeagent check"`}},
		{name: "argument of a command that runs for ever", args: []string{"run", "extra"}, code: 64, says: []string{`nodeagent: unknown command "extra" for "nodeagent run"`}},
		{name: "flag of a command that runs for ever", args: []string{"run", "--colour"}, code: 64, says: []string{"nodeagent: unknown flag: --colour"}},
		{name: "too many arguments", args: []string{"config", "validate", "a", "b"}, code: 64, says: []string{"nodeagent: accepts at most 1 arg(s), received 2"}},
		{name: "unknown command below another", args: []string{"probes", "nope"}, code: 64, says: []string{`nodeagent: unknown command "nope" for "nodeagent probes"`}},
		{name: "unknown command below one that does something itself", args: []string{"metrics", "nope"}, code: 64, says: []string{`nodeagent: unknown command "nope" for "nodeagent metrics"`}},
		{name: "unknown command", args: []string{"chekc"}, code: 64, says: []string{`nodeagent: unknown command "chekc" for "nodeagent"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := run(t, tc.args...)
			if code != cmp.Or(tc.code, 2) || stdout != "" {
				t.Errorf("exit status %d, stdout %q", code, stdout)
			}
			if got := strings.Split(strings.TrimSpace(stderr), "\n"); !reflect.DeepEqual(got, tc.says) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.says, "\n\t"))
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	good := configFile(t, "")
	if stdout, stderr, code := run(t, "config", "validate", good); code != 0 || stdout != good+" is valid\n" || stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	bad := configFile(t, "- name: disk\n")
	stdout, stderr, code := run(t, "config", "validate", bad)
	if code != 2 || stdout != "" || !strings.Contains(stderr, bad+`:8: checks[1].name: unknown check "disk"`) {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	if _, stderr, code := run(t, "config", "validate", "/nowhere.yaml"); code != 2 || !strings.Contains(stderr, "/nowhere.yaml") {
		t.Errorf("%d %q", code, stderr)
	}
}

func TestVersion(t *testing.T) {
	if stdout, _, code := run(t, "version"); code != 0 || !regexp.MustCompile(`^nodeagent \S+ go1\.\S+ linux/\S+\n$`).MatchString(stdout) {
		t.Errorf("%d %q", code, stdout)
	}
}

// The binary itself, as somebody without privileges: it says what it could not read, and ends with that status.
func TestCheckWithoutPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives up root's privileges and must start with them")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "nodeagent")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root, config := hostRoot(t, bridge(t)), configFile(t, "")
	check := func() (string, int) {
		cmd := exec.CommandContext(t.Context(), binary, "check", "--host-root", root, "--config", config)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Env = []string{}
		cmd.WaitDelay = 10 * time.Second
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := check(); code != 0 || !strings.Contains(out, "healthy: 2 ok, 1 not applicable") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	if err := os.Chmod(filepath.Join(root, "etc/cni/net.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := check(); code != 2 || !strings.Contains(out, "CNIConfigUnreadable  open /etc/cni/net.d: permission denied") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

// Where nothing was looked at, nothing is known.
func TestCheckWithoutAnyCheckIsUnknown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.yaml")
	text := "checks:\n"
	for _, k := range catalogue.Kinds() {
		if !k.Template {
			text += "- name: " + k.Name + "\n  disabled: true\n"
		}
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := run(t, "check", "--config="+file); code != 2 || !strings.Contains(out, "unknown: no checks") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}
