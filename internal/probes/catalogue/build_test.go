package catalogue_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

type toolOptions struct {
	Command []string `key:"command"`
	Token   string   `key:"token" secret:"true"`
}

// tool is a template, disk and controller are built in.
var (
	tool = define("tool", probes.Kind{Template: true, Condition: health.AggregateType})
	disk = define("disk", probes.Kind{Condition: "fettle.dev/StorageReady", DependsOn: []string{"controller"}, Clearing: health.ClearByReboot})
	ctrl = define("controller", probes.Kind{Condition: "fettle.dev/KernelReady"})
)

func define(name string, k probes.Kind) probes.Kind {
	k.Name, k.Interval, k.Timeout, k.Thresholds = name, 30*time.Second, time.Second, health.Thresholds{Failure: 2, Success: 1}
	return probes.Define(k, func() toolOptions { return toolOptions{Command: []string{"/bin/true"}} }, func(probes.Env, toolOptions) probes.Probe {
		return probes.Func(func(context.Context) health.Result { return probes.OK("") })
	})
}

func build(t *testing.T, file string) []health.Check {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(file), []probes.Kind{tool, disk, ctrl})
	if err != nil {
		t.Fatal(err)
	}
	looks, checks := catalogue.Build(c.Checks, probes.Env{})
	for i := range checks {
		if checks[i].Definition == "" || looks[i].Name != checks[i].Name {
			t.Errorf("%+v", checks[i])
		}
	}
	return checks
}

func TestBuildPassesOnWhatIsConfigured(t *testing.T) {
	checks := build(t, `
checks:
- name: raid
  kind: tool
  condition: fettle.dev/StorageReady
  dryRun: true
  severity: degraded
  interval: 10s
  timeout: 5s
  failureThreshold: 3
  successThreshold: 4
  minHold: 2m
  flapping: {changes: 5, within: 1h}
  staleAfter: 5m
  clearing: reboot
  dependsOn: [disk]
`)
	checks[2].Definition = ""
	want := health.Check{
		Name: "raid", Condition: "fettle.dev/StorageReady", Thresholds: health.Thresholds{Failure: 3, Success: 4}, Severity: health.SeverityDegraded,
		MinHold: 2 * time.Minute, Flapping: health.Flapping{Changes: 5, Within: time.Hour}, StaleAfter: 5 * time.Minute, Clearing: health.ClearByReboot,
		DependsOn: []string{"disk"}, DryRun: true,
	}
	if !reflect.DeepEqual(checks[2], want) {
		t.Errorf("%+v\nwant %+v", checks[2], want)
	}
	checks[0].Definition = ""
	want = health.Check{
		Name: "disk", Condition: "fettle.dev/StorageReady", Thresholds: health.Thresholds{Failure: 2, Success: 1}, Severity: health.SeverityFatal,
		Flapping: health.Flapping{Changes: 6, Within: 30 * time.Minute}, StaleAfter: 91 * time.Second, Clearing: health.ClearByReboot, DependsOn: []string{"controller"},
	}
	if !reflect.DeepEqual(checks[0], want) {
		t.Errorf("%+v\nwant %+v", checks[0], want)
	}
}

func TestACheckWhosePrerequisiteIsDisabledStandsByItself(t *testing.T) {
	checks := build(t, "checks: [{name: controller, disabled: true}]")
	if len(checks) != 1 || len(checks[0].DependsOn) != 0 {
		t.Errorf("%+v", checks)
	}
}

func TestTheDefinitionChangesWithWhatACheckLooksAt(t *testing.T) {
	definition := func(entry string) string {
		checks := build(t, "checks: ["+entry+"]")
		return checks[slices.IndexFunc(checks, func(c health.Check) bool { return c.Name == "raid" || c.Name == "raid2" })].Definition
	}
	of := definition("{name: raid, kind: tool}")
	for _, same := range []string{
		"{name: raid, kind: tool, interval: 1h, timeout: 10s, failureThreshold: 5, severity: info, minHold: 1m, dryRun: true}",
		"{name: raid, kind: tool, command: [/bin/true]}",
	} {
		if definition(same) != of {
			t.Errorf("%s is another definition", same)
		}
	}
	for _, other := range []string{
		"{name: raid, kind: tool, command: [/bin/false]}", "{name: raid, kind: tool, command: ['/bin/true, ']}", "{name: raid, kind: tool, command: []}",
		"{name: raid, kind: tool, token: secret}",
	} {
		if definition(other) == of {
			t.Errorf("%s is the same definition", other)
		}
	}
}
