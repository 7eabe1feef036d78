package format_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fettle-dev/fettle/internal/packages/format"
)

var shellscript = &format.Package{Name: "shellscript", Version: "1.1.1"}

func TestFlagNames(t *testing.T) {
	for _, tc := range []struct {
		step format.Step
		want string
	}{
		{format.Step{Path: "shellscript_run.sh", Arguments: []string{"apply"}, ReturnCodes: []int{0}}, "shellscript/1.1.1/shellscript_run.sh_WydhcHBseSddX1swXQ=="},
		{format.Step{Path: "a/b.sh", Arguments: []string{}, ReturnCodes: []int{0}}, "shellscript/1.1.1/a/b.sh_W11fWzBd"},
		{format.Step{Path: "x", Arguments: []string{"it's", "x"}, ReturnCodes: []int{0, 3}}, "shellscript/1.1.1/x_WyJpdCdzIiwgJ3gnXV9bMCwgM10="},
		// ['it\'s "x"\n\\\x07é\u2028😀\x80']_[-1]
		{format.Step{Path: "x", Arguments: []string{"it's \"x\"\n\\\aé\u2028😀\u0080"}, ReturnCodes: []int{-1}},
			"shellscript/1.1.1/x_WydpdFwncyAieCJcblxcXHgwN8OpXHUyMDI48J+YgFx4ODAnXV9bLTFd"},
	} {
		if got := shellscript.Flag(tc.step); got != tc.want {
			t.Errorf("%q: %s, not %s", tc.step.Arguments, got, tc.want)
		}
	}
}

func TestFlagContents(t *testing.T) {
	ran := time.Date(2025, 3, 4, 5, 6, 7, 8000, time.UTC)
	if got := string(format.FlagContent(format.Step{Idempotent: true}, ran)); got != "last_run: 2025-03-04T05:06:07.000008\nstep_always_runs: True" {
		t.Errorf("%q", got)
	}
	if got := string(format.FlagContent(format.Step{}, ran.Truncate(time.Second))); got != "last_run: 2025-03-04T05:06:07\nstep_always_runs: False" {
		t.Errorf("%q", got)
	}
	steps := []format.Step{{Path: "a.sh"}, {Path: "b.sh"}}
	if got := string(format.CheckResults(steps, []bool{false, true})); got != "a.sh False\nb.sh True" {
		t.Errorf("%q", got)
	}
	if got := format.AllCheckedFlag(format.PostInterrupt.Check()); got != "post-interrupt-check_ALL_CHECKED" {
		t.Error(got)
	}
}

func TestHistory(t *testing.T) {
	var h format.History
	if h.Previous() != "unknown" {
		t.Errorf("%q before any", h.Previous())
	}
	at := time.Date(2025, 3, 4, 5, 6, 7, 0, time.FixedZone("east", 3600))
	h = h.Record("1.0.0", at).Record(format.Uninstalled, at.Add(time.Second))
	want := `{"current-version": "uninstalled", "history": [{"version": "uninstalled", "time": "2025-03-04T04:06:08+00:00"}, {"version": "1.0.0", "time": "2025-03-04T04:06:07+00:00"}]}`
	if got := string(h.Encode()); got != want {
		t.Errorf("%s", got)
	}
	back, err := format.ReadHistory(h.Encode())
	if err != nil || !cmp.Equal(h, back) {
		t.Errorf("%v %v", back, err)
	}
	for range 2 * format.MaxHistory {
		h = h.Record("2.0.0", at)
	}
	if len(h.Entries) != format.MaxHistory || h.Previous() != "2.0.0" {
		t.Errorf("%d entries", len(h.Entries))
	}
	for _, broken := range []string{"", "{", "[]", "{}", `{"current-version": 1}`} {
		if _, err := format.ReadHistory([]byte(broken)); err == nil {
			t.Errorf("%q is taken for a history", broken)
		}
	}
}

func FuzzReadHistory(f *testing.F) {
	f.Add([]byte(`{"current-version": "1.0.0", "history": [{"version": "1.0.0", "time": "2025-03-04T04:06:07+00:00"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := format.ReadHistory(content)
		if err != nil {
			return
		}
		if back, err := format.ReadHistory(h.Encode()); err != nil || back.Current != h.Current || len(back.Entries) != len(h.Entries) {
			t.Errorf("%v became %v: %v", h, back, err)
		}
	})
}

var (
	folders  = format.Folders{Root: format.DefaultRoot, Logs: format.DefaultLogs, NodeWright: "gpu"}
	resource = format.Resource{NodeWright: "gpu", UID: "f5a1d42e-74e5-4606-8bbc-b504fbe0074d", Generation: 3, Package: "tuning", Version: "2.0.2"}
)

func TestHostTree(t *testing.T) {
	at := time.Date(2025, 3, 4, 5, 6, 7, 0, time.FixedZone("east", 3600))
	for got, want := range map[string]string{
		folders.Copy(resource):           "/var/lib/skyhook/gpu/tuning-2.0.2-f5a1d42e-74e5-4606-8bbc-b504fbe0074d-3",
		folders.Flags():                  "/var/lib/skyhook/gpu/flags",
		folders.History():                "/var/lib/skyhook/gpu/history",
		folders.InterruptFlags(resource): "/var/lib/skyhook/gpu/interrupts/flags/gpu-f5a1d42e-74e5-4606-8bbc-b504fbe0074d-3_tuning_2.0.2",
		folders.StepLog(shellscript, format.Step{Path: "steps/x.sh"}, at): "/var/log/skyhook/gpu/shellscript/1.1.1/steps/x.sh-2025-03-04-040607.log",
		folders.InterruptLog(resource, "service_restart_0", at):           "/var/log/skyhook/gpu/tuning/2.0.2/interrupts/service_restart_0-2025-03-04-040607.log",
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if err := resource.Valid(); err != nil {
		t.Error(err)
	}
	odd := resource
	odd.Package = "a_b"
	if err := odd.Valid(); err == nil || strings.Count(odd.ID(), "_") != 3 {
		t.Errorf("%v", err)
	}
}

func TestEnvironmentLaterLayersWin(t *testing.T) {
	around := format.Surroundings{
		Folders: folders, Resource: resource, Order: 4, Previous: "1.0.0",
		Base:    map[string]string{"PATH": "/bin", "A": "base", "B": "base"},
		Package: map[string]string{"A": "plan", "SKYHOOK_NODE_ORDER": "plan"},
	}
	step := format.Step{Env: map[string]string{"B": "step", "SKYHOOK_DIR": "step", "COPY_RESOLV": "step"}}
	folder := folders.Copy(resource)
	want := map[string]string{
		"PATH": "/bin", "A": "plan", "B": "step", "COPY_RESOLV": "step", "SKYHOOK_NODE_ORDER": "4",
		"SKYHOOK_LOG_DIR": "/var/log/skyhook/gpu", "SKYHOOK_ROOT_DIR": "/var/lib/skyhook/gpu",
		"SKYHOOK_RESOURCE_ID": resource.ID(), "SKYHOOK_DIR": folder, "STEP_ROOT": folder + "/skyhook_dir",
	}
	if diff := cmp.Diff(want, shellscript.Environment(format.Apply, step, around)); diff != "" {
		t.Error(diff)
	}
	want["CURRENT_VERSION"], want["PREVIOUS_VERSION"] = "1.1.1", "1.0.0"
	if diff := cmp.Diff(want, shellscript.Environment(format.Upgrade.Check(), step, around)); diff != "" {
		t.Error(diff)
	}
}

func TestArguments(t *testing.T) {
	env := map[string]string{"A": "x y", "EMPTY": ""}
	got, err := shellscript.Resolve(format.Step{Arguments: []string{"env:A", "env:EMPTY", "envA"}}, env, "")
	if err != nil || !cmp.Equal(got, []string{"x y", "", "envA"}) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := shellscript.Resolve(format.Step{Name: "s", Arguments: []string{"env:B", "env:A", "env:C"}}, env, ""); err == nil || !strings.Contains(err.Error(), "not set: B, C") {
		t.Errorf("%v", err)
	}
	if got, err := shellscript.Resolve(format.Step{UpgradeStep: true}, env, format.Unknown); err != nil || !cmp.Equal(got, []string{"unknown", "1.1.1"}) {
		t.Errorf("%q %v", got, err)
	}
}

func TestFlagsKeepStepsFromRunningTwiceInApplyAndPostInterruptOnly(t *testing.T) {
	for _, tc := range []struct {
		mode       format.Mode
		idempotent bool
		env        map[string]string
		want       bool
	}{
		{mode: format.Apply, want: true},
		{mode: format.PostInterrupt, want: true},
		{mode: format.Apply, idempotent: true},
		{mode: format.Apply, env: map[string]string{format.AlwaysRun: "True"}},
		{mode: format.Config},
		{mode: format.Upgrade},
		{mode: format.Uninstall},
		{mode: format.Apply.Check()},
	} {
		if got := (format.Step{Idempotent: tc.idempotent}).Skips(tc.mode, tc.env); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
