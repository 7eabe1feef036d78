package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/fleet"
)

// TestLivenessPage holds docs/liveness.md against the tables and the defaults in the code, and applies its examples.
func TestLivenessPage(t *testing.T) {
	content, err := os.ReadFile("../../docs/liveness.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	has := func(t *testing.T, line string) {
		t.Helper()
		if !strings.Contains(page, line) {
			t.Errorf("the page lacks: %s", line)
		}
	}
	t.Run("reasons", func(t *testing.T) {
		for _, r := range fleet.Reasons {
			has(t, fmt.Sprintf("\n| `%s` | %s | %s |\n", r.Name, r.Says, r.Do))
		}
	})
	t.Run("events", func(t *testing.T) {
		for _, note := range silenceNotes {
			about := "the Node"
			if strings.HasPrefix(note.reason, "Fleet") {
				about = "the FleetPolicy"
			}
			has(t, fmt.Sprintf("\n| `%s` | %s | %s |\n", note.reason, about, note.says))
		}
	})
	t.Run("verdicts", func(t *testing.T) {
		for _, v := range fleet.Verdicts {
			has(t, fmt.Sprintf("\n| `%s` | ", v))
		}
	})
	t.Run("flags", func(t *testing.T) {
		o := DefaultOptions()
		short := func(d time.Duration) string {
			return regexp.MustCompile(`([hm])0[ms](0s)?$`).ReplaceAllString(d.String(), "$1")
		}
		has(t, fmt.Sprintf("| `--host-lifecycle-grace-period` | `%s` |", short(o.HostLifecycleGracePeriod)))
		has(t, fmt.Sprintf("| `--host-startup-grace-period` | `%s` |", short(o.HostStartupGracePeriod)))
	})

	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want the defaults and the override", len(blocks))
	}
	commands := regexp.MustCompile(`(?m)^    \$ kubectl (.*)$`).FindAllStringSubmatch(page, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands, want that which shows the policy and that which ends the override", len(commands))
	}
	w := newWorld(t)
	w.run(t, testOptions(t))
	apply := func(t *testing.T, i int) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(blocks[i][1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.ControlPlane.Apply(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := func(t *testing.T, i int) string {
		out, err := w.Kubectl(t.Context(), strings.Fields(strings.ReplaceAll(commands[i][1], "'", ""))...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Run("the example of the defaults has the defaults", func(t *testing.T) {
		apply(t, 0)
		if got, want := policyOf(w.policy(t), fleet.Limits{}).Limits, fleet.DefaultLimits(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		w.fleetIs(t, fleet.Normal, fleet.ReasonAgentsHeard)
		out := kubectl(t, 0)
		for _, column := range []string{"VERDICT", "REASON", "SINCE", "HEARD", "STALE", "SILENT"} {
			if !strings.Contains(out, column) || !strings.Contains(page, column) {
				t.Errorf("no column %s:\n%s", column, out)
			}
		}
	})
	t.Run("the override can be set and ended", func(t *testing.T) {
		apply(t, 1)
		w.fleetEvent(t, noteOverridden, "power is off in hall 2")
		kubectl(t, 1)
		w.fleetEvent(t, noteOverEnded, "the verdict is Normal")
		if w.policy(t).Spec.Silence.Override != nil {
			t.Error("the override is still there")
		}
	})
}
