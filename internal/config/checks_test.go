package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
)

func parse(t *testing.T, content string) Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(content), testKinds)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestATemplateMakesChecks(t *testing.T) {
	c := parse(t, `
checks:
- name: raid-state
  kind: exec
  command: [/usr/bin/raid, --state]
  environment: [{name: A, value: b}]
- name: "7"
  kind: exec
  condition: example.com/Seven
  dependsOn: []
- name: disk
  kind: disk
  interval: 10s
`)
	var names []string
	for _, check := range c.Checks {
		names = append(names, check.Settings.Name+" of "+check.Settings.Kind)
	}
	if want := []string{"disk of disk", "disk-space of disk-space", "raid-state of exec", "7 of exec"}; !slices.Equal(names, want) {
		t.Fatalf("%q", names)
	}
	raid, seven := c.check("raid-state"), c.check("7")
	if o := raid.Options.(*toolOptions); !slices.Equal(o.Command, []string{"/usr/bin/raid", "--state"}) || o.Mode != "one" || o.Environment[0] != (variable{"A", "b"}) {
		t.Errorf("%+v", o)
	}
	want := CheckSettings{
		Name: "raid-state", Kind: "exec", Condition: health.AggregateType, Severity: health.SeverityFatal, Interval: 30 * time.Second, Timeout: time.Second,
		FailureThreshold: 2, SuccessThreshold: 1, Flapping: Flapping{Changes: 6, Within: 30 * time.Minute}, StaleAfter: 91 * time.Second, Clearing: health.ClearByLooks,
		DependsOn: []string{"disk"},
	}
	if !reflect.DeepEqual(raid.Settings, want) {
		t.Errorf("%+v\nwant %+v", raid.Settings, want)
	}
	if o := seven.Options.(*toolOptions); !slices.Equal(o.Command, []string{"/bin/true"}) || len(seven.Settings.DependsOn) != 0 || seven.Settings.Condition != "example.com/Seven" {
		t.Errorf("%+v %+v", seven.Settings, o)
	}
	if s := c.check("disk").Settings; s.Interval != 10*time.Second || s.StaleAfter != 31*time.Second {
		t.Errorf("%+v", s)
	}
}

func TestFaultsOfChecks(t *testing.T) {
	const names = "disk, disk-space; or a name of its own with kind: exec"
	const conditions = "DOMAIN/Name, e.g. fettle.dev/StorageReady or example.com/RaidHealthy; the shipped admission policy lets agents write those of fettle.dev only"
	for _, tc := range []struct {
		name, entry string
		want        []string
	}{
		{"a template without a name of its own", "{name: exec}", []string{`checks[0].name: "exec" is a kind of which checks are made, each with a name of its own (allowed: kind: exec, and another name)`}},
		{"a check by the name of its template", "{name: exec, kind: exec}", []string{`checks[0].name: "exec" is the name of a kind (allowed: a name of the check's own)`}},
		{"a check by the name of a built-in one", "{name: disk, kind: exec}", []string{`checks[0].name: "disk" is the name of a kind (allowed: a name of the check's own)`}},
		{"a second check of a built-in kind", "{name: disk2, kind: disk}", []string{`checks[0].kind: there is one check of the kind "disk", which has its name (allowed: name: disk)`}},
		{"a kind that does not exist", "{name: a, kind: exe}", []string{`checks[0].kind: unknown kind "exe"; did you mean "exec"? (allowed: exec)`}},
		{"a kind that is no text", "{name: a, kind: [exec]}", []string{`checks[0].kind: unknown kind "" (allowed: exec)`}},
		{"no kind", "{name: raid}", []string{`checks[0].name: unknown check "raid" (allowed: ` + names + `)`}},
		{"a mistyped name", "{name: dsk}", []string{`checks[0].name: unknown check "dsk"; did you mean "disk"? (allowed: ` + names + `)`}},
		{"only a kind", "{kind: exec}", []string{`checks[0].name: is missing (allowed: ` + names + `)`}},
		{"a name that is a number", "{name: 7, kind: exec}", []string{`checks[0].name: is not text (allowed: ` + labels + `)`}},
		{"a name in capitals", "{name: RAID, kind: exec}", []string{`checks[0].name: "RAID" cannot be the name of a check (allowed: ` + labels + `)`}},
		{"a name with a dot", "{name: a.b, kind: exec}", []string{`checks[0].name: "a.b" cannot be the name of a check (allowed: ` + labels + `)`}},
		{"a long name", "{name: " + strings.Repeat("a", 64) + ", kind: exec}", []string{`checks[0].name: "` + strings.Repeat("a", 64) + `" cannot be the name of a check (allowed: ` + labels + `)`}},
		{"the same name twice", "{name: a, kind: exec}, {name: a, kind: exec}", []string{`checks[1].name: check "a" is listed a second time; the first is in line 1 (allowed: each check once)`}},
		{"a condition of the kubelet", "{name: disk, condition: DiskPressure}", []string{`checks[disk].condition: "DiskPressure" is a condition of the kubelet's (allowed: ` + conditions + `)`}},
		{"a condition without a domain", "{name: disk, condition: DiskReady}", []string{`checks[disk].condition: "DiskReady" has no domain (allowed: ` + conditions + `)`}},
		{"a condition of Kubernetes", "{name: disk, condition: node.kubernetes.io/Disk}", []string{`checks[disk].condition: "node.kubernetes.io/Disk" is in a domain of Kubernetes (allowed: ` + conditions + `)`}},
		{"a condition of k8s.io", "{name: disk, condition: k8s.io/Disk}", []string{`checks[disk].condition: "k8s.io/Disk" is in a domain of Kubernetes (allowed: ` + conditions + `)`}},
		{"a condition that is no name", "{name: disk, condition: 'a.b/c d'}", []string{`checks[disk].condition: "a.b/c d" is not a qualified name (allowed: ` + conditions + `)`}},
		{"a domain that only ends like one of Kubernetes", "{name: disk, condition: notk8s.io/Disk}", nil},
		{"a severity", "{name: disk, severity: bad}", []string{`checks[disk].severity: "bad" is not one of the allowed values (allowed: fatal, degraded, info)`}},
		{"clearing", "{name: disk, clearing: never}", []string{`checks[disk].clearing: "never" is not one of the allowed values (allowed: looks, reboot)`}},
		{"a hold below zero", "{name: disk, minHold: -1s}", []string{`checks[disk].minHold: "-1s" is too small (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, from 0s to 24h)`}},
		{"flapping that every repair is", "{name: disk, flapping: {changes: 2}}", []string{`checks[disk].flapping.changes: 2 changes are those of a check that breaks and is repaired (allowed: 0, or from 3 to 100)`}},
		{"no flapping", "{name: disk, flapping: {changes: 0}}", nil},
		{"a key of flapping", "{name: disk, flapping: {change: 3}}", []string{`checks[disk].flapping.change: unknown key "change"; did you mean "changes"? (allowed: changes, within)`}},
		{"stale before the next look", "{name: disk, staleAfter: 30s}", []string{`checks[disk].staleAfter: a verdict would be stale after 30s, before the next look must have ended (allowed: 0s, or at least interval + timeout, which is 31s)`}},
		{"never stale", "{name: disk, staleAfter: 0s}", nil},
		{"depending on itself", "{name: disk, dependsOn: [disk]}", []string{`checks[disk].dependsOn[0]: the check depends on itself (allowed: names of other checks)`}},
		{"depending on nothing", "{name: disk, dependsOn: [dik-space]}", []string{`checks[disk].dependsOn[0]: unknown check "dik-space"; did you mean "disk-space"? (allowed: disk, disk-space)`}},
		{"depending on a check that is made further down", "{name: disk, dependsOn: [later]}, {name: later, kind: exec, dependsOn: []}", nil},
		{"depending on each other through a default", "{name: disk, dependsOn: [disk-space]}", []string{`checks[disk].dependsOn: checks depend on each other: disk → disk-space → disk (allowed: no cycle)`}},
		{"a longer cycle", "{name: disk, dependsOn: [a]}, {name: a, kind: exec, dependsOn: [b]}, {name: b, kind: exec, dependsOn: [disk-space]}", []string{
			`checks[a].dependsOn: checks depend on each other: disk → a → b → disk-space → disk (allowed: no cycle)`}},
		{"a variable without a name, in an option", "{name: disk, environment: [{value: a}]}", []string{`checks[disk].environment[0].name: a variable has no name (allowed: a name)`}},
		{"a secret of the wrong type is not shown", "{name: disk, token: 12345}", []string{`checks[disk].token: is not what is allowed (allowed: text)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte("checks: ["+tc.entry+"]\n"), testKinds)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			for i := range tc.want {
				tc.want[i] = "f.yaml:1: " + tc.want[i]
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

func TestConditionsAndChecksAreNotWithoutNumber(t *testing.T) {
	file := func(n, types int) []byte {
		var b strings.Builder
		b.WriteString("checks:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: c%d, kind: exec, condition: a.b/C%d}\n", i, i%types)
		}
		return []byte(b.String())
	}
	if _, err := Parse("f.yaml", file(31, 31), testKinds); err != nil {
		t.Errorf("31 types and that of the built-in checks: %v", err)
	}
	_, err := Parse("f.yaml", file(33, 33), testKinds)
	if want := "f.yaml:33: checks[c31].condition: a.b/C31 is one type of condition too many (allowed: at most 32 types)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = Parse("f.yaml", file(257, 1), testKinds)
	if want := "f.yaml:258: checks: the list has 257 entries (allowed: at most 256)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
