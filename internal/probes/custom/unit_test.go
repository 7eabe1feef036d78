package custom_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/machines"
)

// Commands run under the agent's unit as shipped, with all that hardens it, on a real systemd machine.
func TestCommandsUnderTheHardenedUnit(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nodeagent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../../cmd/nodeagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	unit, err := os.ReadFile("../../../packaging/systemd/nodeagent.service")
	if err != nil {
		t.Fatal(err)
	}
	m := machines.ForTest(t, machines.Options{
		Name:  "machine-exec",
		Binds: []machines.Bind{{Source: binary, Target: "/usr/bin/nodeagent"}},
		Files: []machines.File{
			{Path: "/etc/systemd/system/nodeagent.service", Text: string(unit)},
			{Path: "/etc/systemd/system/nodeagent.service.d/once.conf", Text: "[Service]\nType=oneshot\nRestart=no\nWatchdogSec=0\nStandardOutput=truncate:/run/looked.json\n" +
				"ExecStopPost=\n" + // it would truncate the file again
				"ExecStart=\nExecStart=/usr/bin/nodeagent check --config=/etc/fettle/nodeagent.yaml --output=json\n"},
			{Path: "/etc/fettle/nodeagent.yaml", Mode: 0o600, Text: `checks:
- {name: script, kind: exec, command: [sh, -c, 'echo "$LEVEL $(cat /proc/self/oom_score_adj)"; exit 1'], env: [LEVEL=2], interval: 5m, timeout: 2m}
- {name: leaves, kind: exec, command: [sh, -c, 'setsid -f sleep 1000; sleep 1001 & exit 0'], interval: 5m, timeout: 2m}
- {name: slow, kind: exec, command: [sleep, "1002"], timeout: 1s}
- {name: folder, kind: exec, command: [/usr], interval: 5m, timeout: 2m}
`},
		},
	})
	if _, err := m.Exec(t.Context(), "systemctl", "start", "nodeagent.service"); err == nil {
		t.Error("all is well, says the agent")
	}
	text, err := m.ReadFile(t.Context(), "/run/looked.json")
	if err != nil {
		t.Fatal(err)
	}
	var looked struct {
		Checks []struct{ Name, Reason, Message string }
	}
	if err := json.Unmarshal([]byte(text), &looked); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	got := map[string]string{}
	for _, c := range looked.Checks {
		got[c.Name] = c.Reason + " " + c.Message
	}
	for name, want := range map[string]string{
		"script": "ExecFailed 2 1000", "leaves": "OK sh finds nothing wrong",
		"slow": "CheckTimedOut ", "folder": "ExecNotRunnable execute /usr: is a directory",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
