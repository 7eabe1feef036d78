package daemonset

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// agentCommand is the agent's command line as the image and the manifest make it.
const agentCommand = "/usr/bin/nodeagent run --config=/etc/fettle/nodeagent.yaml"

// agentPID is the agent's process ID as the guest's kernel counts.
func (w *world) agentPID(ctx context.Context) (string, error) {
	out, err := w.vm.Exec(ctx, "pgrep", "--exact", "--full", agentCommand)
	if err != nil {
		return "", fmt.Errorf("find the agent's process: %w", err)
	}
	pids := strings.Fields(out)
	if len(pids) != 1 {
		return "", fmt.Errorf("the agent's processes are %v, want one", pids)
	}
	return pids[0], nil
}

func (w *world) killAgent(t *testing.T) {
	t.Helper()
	pid, err := w.agentPID(t.Context())
	must(t, err)
	w.guest(t, "kill", "-KILL", pid)
}

func (w *world) guest(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.vm.Exec(t.Context(), args...)
	must(t, err)
	return out
}

// mount is a line of /proc/PID/mountinfo.
type mount struct {
	readOnly, follows bool // follows: what is mounted on the host later appears here (it is a slave)
}

func (w *world) agentMounts(t *testing.T, pid string) map[string]mount {
	t.Helper()
	all := map[string]mount{}
	for line := range strings.Lines(w.guest(t, "cat", "/proc/"+pid+"/mountinfo")) {
		fields := strings.Fields(line) // proc_pid_mountinfo(5): mount point and options are fields 5 and 6, optional ones follow until "-"
		m := mount{readOnly: strings.HasPrefix(fields[5]+",", "ro,")}
		for _, field := range fields[6:] {
			if field == "-" {
				break
			}
			m.follows = m.follows || strings.HasPrefix(field, "master:")
		}
		all[fields[4]] = m
	}
	return all
}

// memory logs the resident memory of the agent's process, and its highest so far.
func (w *world) memory(t *testing.T) {
	t.Helper()
	pid, err := w.agentPID(t.Context())
	must(t, err)
	var kilobytes []int
	status := w.guest(t, "cat", "/proc/"+pid+"/status")
	for _, name := range []string{"VmRSS", "RssAnon", "VmHWM"} {
		_, rest, _ := strings.Cut(status, name+":")
		line, _, _ := strings.Cut(rest, "kB")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		must(t, err)
		kilobytes = append(kilobytes, n)
	}
	t.Logf("the agent's memory: %.1f MiB resident, %.1f of them its own, at most %.1f MiB so far",
		float64(kilobytes[0])/1024, float64(kilobytes[1])/1024, float64(kilobytes[2])/1024)
}

// journalCursor marks now in the guest's journal.
func (w *world) journalCursor(t *testing.T) string {
	t.Helper()
	out := w.guest(t, "journalctl", "--no-pager", "--lines=0", "--show-cursor")
	_, cursor, found := strings.Cut(strings.TrimSpace(out), "-- cursor: ")
	if !found {
		t.Fatalf("no cursor in %q", out)
	}
	return cursor
}
