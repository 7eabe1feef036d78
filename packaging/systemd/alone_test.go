package systemd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/machines"
	"github.com/fettle-dev/fettle/test/port"
)

// brokenCNI is a file that the check of the CNI configuration calls broken wherever it lies.
const (
	brokenCNI = "/etc/cni/net.d/10-broken.conf"
	cniField  = "FETTLE_CHECK=cni-config"
)

// needed is a unit that the machine needs, as the agent is told.
const needed = "needed.service"

// alone is a machine with the agent's unit as shipped, and no cluster. What it answers on its address comes from the
// returned URL.
func alone(t *testing.T) (f *fixture, url string) {
	t.Helper()
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	f = &fixture{Machine: machines.ForTest(t, machines.Options{
		Name:  "alone",
		Binds: []machines.Bind{{Source: built(t), Target: "/usr/bin/nodeagent"}},
		Files: []machines.File{
			{Path: "/etc/systemd/system/nodeagent.service", Text: read(t, "nodeagent.service")},
			{Path: "/etc/systemd/system/" + needed, Text: "[Service]\nExecStart=/bin/sleep infinity\n"},
			{Path: "/etc/fettle/nodeagent.yaml", Mode: 0o600, Text: `
endpoints:
  metricsAddress: 127.0.0.1:` + p.String() + `
checks:
- name: default-route # the network is that of whatever runs the test
  disabled: true
- name: cni-config
  interval: 1s
  timeout: 900ms
  failureThreshold: 1
  successThreshold: 1
  flapping: {changes: 0} # this test changes more than a machine does
- name: systemd-units
  units: [` + needed + `]
  interval: 1h # it looks when it is told of a change
  failureThreshold: 1
  successThreshold: 1
`},
		},
	})}
	f.exec(t, "systemctl", "start", needed, "nodeagent.service") // returns once the agent says that it is ready
	return f, "http://127.0.0.1:" + p.String()
}

// break and repair the machine's network, as the agent sees it.
func (f *fixture) breakCNI(t *testing.T) {
	t.Helper()
	if err := f.WriteFile(t.Context(), brokenCNI, "{ not JSON", 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) repairCNI(t *testing.T) {
	t.Helper()
	if err := f.RemoveFile(t.Context(), "/etc/cni"); err != nil {
		t.Fatal(err)
	}
}

// status runs `nodeagent status` on the machine.
func (f *fixture) status(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	out = f.exec(t, append([]string{"sh", "-c", `nodeagent status "$@"; echo "exit status $?"`, "sh"}, args...)...)
	at := strings.LastIndex(out, "exit status ")
	if _, err := fmt.Sscanf(out[at:], "exit status %d", &code); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out[:at], code
}

func (f *fixture) awaitVerdict(t *testing.T, check, want string) {
	t.Helper()
	f.await(t, check+" is "+want, func(context.Context) bool {
		out, _ := f.status(t, "--output=json")
		var said struct {
			Health struct {
				Checks []struct{ Name, Verdict string }
			}
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return false // no agent answers at the moment
		}
		for _, c := range said.Health.Checks {
			if c.Name == check {
				return c.Verdict == want
			}
		}
		return false
	})
}

// said counts lines of the journal about a check that have a text.
func (f *fixture) said(t *testing.T, text string) int {
	t.Helper()
	return strings.Count(f.exec(t, "journalctl", "--no-pager", "--output=cat", cniField), text)
}

func (f *fixture) awaitSaid(t *testing.T, text string, more int) {
	t.Helper()
	f.await(t, fmt.Sprintf("the journal's %s says %q once more than %d times", cniField, text, more), func(context.Context) bool {
		return f.said(t, text) > more
	})
}

const (
	saidBroken   = "verdict=fatal reason=CNIConfigInvalid"
	saidRepaired = "verdict=notApplicable reason=NotApplicable"
)

func TestAMachineAlone(t *testing.T) {
	f, url := alone(t)

	t.Run("status says who, how and what else", func(t *testing.T) {
		var out string
		f.await(t, "it says that all is well", func(context.Context) bool {
			var code int
			out, code = f.status(t)
			return code == 0
		})
		for _, want := range []string{
			`Machine +Healthy since \d.*: \d+ ok`, `Agent +Service of node alone, version \S+, process \d+, up \d`,
			`Cluster +none is configured; the agent runs alone`, `Configuration +/etc/fettle/nodeagent.yaml`, `\nroot-filesystem +ok +OK +`,
		} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	})
	t.Run("it answers on its address", func(t *testing.T) {
		for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": "fettle_decided 1\n"} {
			if code, body := get(t, url+path); code != 200 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		if code, _ := get(t, url+"/status"); code != 404 {
			t.Errorf("the status is told to everybody: %d", code)
		}
	})
	t.Run("root alone may ask, everybody may read", func(t *testing.T) {
		if got := f.exec(t, "stat", "--format=%a %U", "/run/fettle", "/run/fettle/agent.sock", "/run/fettle/status.json"); got != "755 root\n600 root\n644 root" {
			t.Errorf("%s", got)
		}
		f.await(t, "somebody else reads that all is well", func(ctx context.Context) bool {
			out, err := f.Exec(ctx, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "nodeagent", "status")
			return err == nil && strings.HasPrefix(out, "Only root may ask the agent. This is what it last wrote, ") && strings.Contains(out, "Machine        Healthy")
		})
	})
	t.Run("a change is in the journal with its check, in the status and in the metrics", func(t *testing.T) {
		f.breakCNI(t)
		f.awaitSaid(t, saidBroken, 0)
		f.awaitVerdict(t, "cni-config", "fatal")
		out, code := f.status(t)
		if code != 1 || !strings.Contains(out, "Machine        Unhealthy since ") || !strings.Contains(out, "(CNIConfigInvalid)") {
			t.Errorf("exit status %d\n%s", code, out)
		}
		f.await(t, "the file says so", func(ctx context.Context) bool {
			text, err := f.ReadFile(ctx, "/run/fettle/status.json")
			return err == nil && strings.Contains(text, "CNIConfigInvalid")
		})
		if out := f.exec(t, "nodeagent", "metrics"); !strings.Contains(out, `fettle_condition_status{type="fettle.dev/NetworkReady",status="False"} 1`) {
			t.Errorf("%s", out)
		}
		if code, body := get(t, url+"/readyz"); code != 200 {
			t.Errorf("an agent that has found something is not ready: %d %s", code, body)
		}
	})
	t.Run("a journal that is restarted gets the next change", func(t *testing.T) {
		f.exec(t, "systemctl", "restart", "systemd-journald.service")
		before := f.said(t, saidRepaired)
		f.repairCNI(t)
		f.awaitVerdict(t, "cni-config", "notApplicable")
		f.awaitSaid(t, saidRepaired, before)
	})
	t.Run("a journal that hangs hangs no check", func(t *testing.T) {
		broken, repaired := f.said(t, saidBroken), f.said(t, saidRepaired)
		journal := f.exec(t, "systemctl", "show", "-P", "MainPID", "systemd-journald.service")
		f.exec(t, "kill", "-STOP", journal)
		resume := func() { f.exec(t, "kill", "-CONT", journal) }
		defer func() {
			if t.Failed() {
				resume()
			}
		}()
		// Until its socket is full, which makes the next writer wait.
		f.exec(t, "sh", "-c", `while printf 'MESSAGE=flood\n' | timeout 5 logger --journald; do :; done`)
		f.breakCNI(t)
		f.awaitVerdict(t, "cni-config", "fatal")
		f.repairCNI(t)
		f.awaitVerdict(t, "cni-config", "notApplicable")
		f.breakCNI(t)
		f.awaitVerdict(t, "cni-config", "fatal")
		resume()
		f.awaitSaid(t, saidBroken, broken) // the line that was waiting
		f.repairCNI(t)
		f.awaitSaid(t, saidRepaired, repaired)
		if got := f.show(t, "NRestarts"); got != "0" {
			t.Errorf("the agent was restarted %s times", got)
		}
	})
	t.Run("of a D-Bus that was killed and started again the agent hears of units as before", func(t *testing.T) {
		bus := func() string { return f.exec(t, "systemctl", "show", "-P", "MainPID", "dbus.service") }
		before := bus()
		f.exec(t, "systemctl", "kill", "--signal=KILL", "dbus.service")
		f.await(t, "another bus", func(ctx context.Context) bool {
			_, err := f.Exec(ctx, "systemctl", "start", "dbus.service")
			now := bus()
			return err == nil && now != before && now != "0"
		})
		for range 2 {
			f.exec(t, "systemctl", "stop", needed)
			f.awaitVerdict(t, "systemd-units", "fatal")
			f.exec(t, "systemctl", "start", needed)
			f.awaitVerdict(t, "systemd-units", "ok")
		}
		if got := f.show(t, "NRestarts"); got != "0" {
			t.Errorf("the agent was restarted %s times", got)
		}
	})
	t.Run("a reload takes a good file and refuses a bad one, and the agent goes on", func(t *testing.T) {
		pid := f.show(t, "MainPID")
		file := f.exec(t, "cat", "/etc/fettle/nodeagent.yaml")
		rewrite := func(text string) {
			if err := f.WriteFile(t.Context(), "/etc/fettle/nodeagent.yaml", text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rewrite(strings.Replace(file, "interval: 1s", "interval: 2s", 1))
		f.exec(t, "systemctl", "reload", "nodeagent.service")
		f.await(t, "the second configuration is in force", func(context.Context) bool {
			out, _ := f.status(t)
			return strings.Contains(out, ", generation 2, ")
		})
		rewrite("checks: [{name: no-such-check}]\n")
		if out, err := f.Exec(t.Context(), "systemctl", "reload", "nodeagent.service"); err == nil {
			t.Errorf("a bad file was taken: %s", out)
		}
		f.await(t, "status says what is wrong", func(context.Context) bool {
			out, _ := f.status(t)
			return strings.Contains(out, "NOT IN FORCE AS IT STANDS") && strings.Contains(out, "no-such-check")
		})
		rewrite(file)
		f.await(t, "the fault is gone", func(context.Context) bool {
			out, _ := f.status(t)
			return !strings.Contains(out, "NOT IN FORCE AS IT STANDS")
		})
		f.await(t, "the service is active", func(context.Context) bool { return f.show(t, "ActiveState") == "active" })
		if now := f.show(t, "MainPID"); now != pid {
			t.Errorf("process %s is another than %s", now, pid)
		}
	})
	t.Run("a variable that is mistyped is told at a reload, and left out at a start", func(t *testing.T) {
		const variables = "/etc/fettle/nodeagent.env"
		f.edit(t, variables, "FETTLE_LOG_LVEL=debug\nFETTLE_LOG_FORMAT=journal\n")
		if out, err := f.Exec(t.Context(), "systemctl", "reload", "nodeagent.service"); err == nil {
			t.Errorf("a mistyped variable was taken: %s", out)
		}
		if !strings.Contains(f.exec(t, "journalctl", "--no-pager", "--output=cat", "--unit=nodeagent"), `did you mean "FETTLE_LOG_LEVEL"?`) {
			t.Error("the journal does not say what is wrong")
		}
		f.exec(t, "systemctl", "restart", "nodeagent.service")
		f.await(t, "status says what is left out", func(context.Context) bool {
			out, code := f.status(t)
			return code == 0 && strings.Contains(out, "NOT IN FORCE AS IT STANDS") && strings.Contains(out, "FETTLE_LOG_LVEL") &&
				strings.Contains(out, "in force: the configuration without those values")
		})
		f.edit(t, variables, "FETTLE_LOG_FORMAT=journal\n")
		f.exec(t, "systemctl", "reload", "nodeagent.service")
		f.exec(t, "systemctl", "restart", "nodeagent.service")
		f.await(t, "nothing is left out", func(context.Context) bool {
			out, code := f.status(t)
			return code == 0 && !strings.Contains(out, "NOT IN FORCE AS IT STANDS")
		})
	})
	t.Run("a key that others could read is not used, and status says so", func(t *testing.T) {
		const key, warning = "/var/lib/fettle/sealing.key", "NO VALUES CAN BE SEALED TO IT"
		for _, tc := range []struct {
			mode string
			says bool
		}{{"0644", true}, {"0600", false}} {
			f.exec(t, "chmod", tc.mode, key)
			f.exec(t, "systemctl", "restart", "nodeagent.service")
			f.await(t, "status of an agent whose key has mode "+tc.mode, func(context.Context) bool {
				out, code := f.status(t)
				return code == 0 && strings.Contains(out, warning) == tc.says
			})
		}
	})
	t.Run("an agent that was killed is seen to be gone, and to be back", func(t *testing.T) {
		pid := f.show(t, "MainPID")
		f.exec(t, "systemctl", "kill", "--signal=KILL", "nodeagent.service")
		f.await(t, "another process answers", func(context.Context) bool {
			out, code := f.status(t)
			return code == 0 && !strings.Contains(out, "process "+pid+",")
		})
	})
	t.Run("of an agent that was stopped its last words stay", func(t *testing.T) {
		f.exec(t, "systemctl", "stop", "nodeagent.service")
		out, code := f.status(t)
		if code != 2 || !strings.HasPrefix(out, "NO AGENT ANSWERS. This is what it last said, ") || !strings.Contains(out, "Machine        Healthy") {
			t.Errorf("exit status %d\n%s", code, out)
		}
		if out, err := f.Exec(t.Context(), "test", "-e", "/run/fettle/agent.sock"); err == nil {
			t.Errorf("its socket is still there %s", out)
		}
	})
}

// mostExposure bounds what systemd-analyze says of the unit, times ten. What is left of its exposure is in the unit, with
// reasons; most of it is that the agent is root and sees the machine as it is.
const mostExposure = "34"

func TestTheUnitIsHardened(t *testing.T) {
	m := machines.ForTest(t, machines.Options{
		Name: "hardened",
		Files: []machines.File{
			{Path: "/etc/systemd/system/nodeagent.service", Text: read(t, "nodeagent.service")},
			{Path: "/usr/bin/nodeagent", Text: "#!/bin/sh\n", Mode: 0o755},
		},
	})
	out, err := m.Exec(t.Context(), "systemd-analyze", "security", "--no-pager", "--threshold="+mostExposure, "nodeagent.service")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Log(lines[len(lines)-1])
	if err != nil {
		t.Errorf("more than %s: %v", mostExposure, err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
