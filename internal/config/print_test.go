package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

func explain(t *testing.T, file string, environ []string, args ...string) (Effective, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("nodeagent", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(append(args, "--config", path)); err != nil {
		t.Fatal(err)
	}
	e, err := Source{over: newOverlay(flags, environ), kinds: testKinds}.Explain()
	if err != nil {
		t.Fatal(err)
	}
	return e, path
}

const printedFile = `heartbeat:
  interval: 12s
checks:
- name: raid
  kind: exec
  command:
  - "a: b"
  - "# c"
  environment: [{name: PASSWORD, value: hunter2}, {name: EMPTY}]
  token: hunter2
`

func TestPrintSaysWhereEachValueCameFrom(t *testing.T) {
	e, path := explain(t, printedFile, []string{"FETTLE_LOG_LEVEL=debug", "FETTLE_CHECKS_RAID_CODES=1,2", "FETTLE_NODE_NAME=from-environment"}, "--node-name", "from-flag")
	var out bytes.Buffer
	if err := e.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"nodeName: from-flag # flag --node-name\n",
		"kubeconfig: \"\" # default\n",
		"heartbeat:\n  interval: 12s # " + path + ":2\n  leaseDuration: 40s # default\n",
		"log:\n  level: debug # environment FETTLE_LOG_LEVEL\n",
		"- name: disk-space\n  kind: disk-space\n",
		"- name: raid\n  kind: exec\n  condition: fettle.dev/Healthy # default\n",
		"  flapping:\n    changes: 6 # default\n    within: 30m0s # default\n  staleAfter: 1m31s # default\n",
		"  dependsOn: [disk] # default\n",
		"  command: ['a: b', '# c'] # " + path + ":6\n",
		"  codes: [1, 2] # environment FETTLE_CHECKS_RAID_CODES\n",
		"  token: (hidden) # " + path + ":10\n",
		"  environment: [{name: PASSWORD, value: (hidden)}, {name: EMPTY, value: \"\"}] # " + path + ":9\n",
		"  nested:\n    urlPath: \"\" # default\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in\n%s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Error("a secret is shown")
	}
	if _, err := Parse("printed", out.Bytes(), testKinds); err != nil {
		t.Errorf("what is printed is no configuration: %v", err)
	}
}

func TestPrintAsJSON(t *testing.T) {
	e, path := explain(t, printedFile, []string{"FETTLE_LOG_LEVEL=debug"}, "--node-name", "from-flag")
	var out bytes.Buffer
	if err := e.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Keys []effectiveKey }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []effectiveKey{
		{"nodeName", "from-flag", effectiveSource{"flag", "--node-name"}},
		{"log.level", "debug", effectiveSource{"environment", "FETTLE_LOG_LEVEL"}},
		{"heartbeat.interval", "12s", effectiveSource{"file", path + ":2"}},
		{"heartbeat.leaseDuration", "40s", effectiveSource{"default", ""}},
		{"checks[raid].retries", 0.0, effectiveSource{"default", ""}},
		{"checks[raid].disabled", false, effectiveSource{"default", ""}},
		{"checks[raid].token", "(hidden)", effectiveSource{"file", path + ":10"}},
	} {
		if !slices.ContainsFunc(got.Keys, func(k effectiveKey) bool { return k == want }) {
			t.Errorf("%+v is not in\n%s", want, out.String())
		}
	}
	if len(got.Keys) != len(e.Config.keys()) || strings.Contains(out.String(), "hunter2") {
		t.Errorf("%d keys of %d:\n%s", len(got.Keys), len(e.Config.keys()), out.String())
	}
}

// Whatever values keys have, what is printed gives the same configuration again.
func TestWhatIsPrintedGivesTheSameConfiguration(t *testing.T) {
	const odd = "null|~|yes|on|0x1|1e3|2030-01-01|# a|a # b|a: b|- a|[a|{a}|'|\"|%a|@a|`a|!a|&a|*a|>|\\||?| a|a |\ta|a\nb|a\n|\r|\u2028|\u0085|\u00a0|\ufeff|\x01|é|界|:|,|a,b|true|.inf|<<|=|---|..."
	texts := rapid.OneOf(rapid.SampledFrom(strings.Split(odd, "|")), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		c := Default(testKinds)
		raid := newCheck(testKinds[2], "raid")
		c.Checks = append(c.Checks, raid)
		c.derive(func(string) bool { return false })
		c.Kubeconfig = texts.Draw(t, "kubeconfig")
		for i := range c.Checks {
			o := c.Checks[i].Options.(*toolOptions)
			o.Command = rapid.SliceOfN(texts, 0, 4).Draw(t, "command")
			o.Nested.URLPath = texts.Draw(t, "urlPath")
			o.Codes = rapid.SliceOfN(rapid.IntRange(1, 255), 0, 3).Draw(t, "codes")
			o.Strict = rapid.Bool().Draw(t, "strict")
			for range rapid.IntRange(0, 2).Draw(t, "variables") {
				o.Environment = append(o.Environment, variable{Name: "A" + texts.Draw(t, "name")})
			}
		}
		var out bytes.Buffer
		if err := (Effective{Config: c, source: func(string) string { return "a file: with\na strange #name:1" }}).WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", out.Bytes(), testKinds)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if changed := again.Changes(c); len(changed) > 0 {
			t.Fatalf("%v changed in\n%s", changed, out.String())
		}
	})
}

func TestChanges(t *testing.T) {
	const file = "nodeName: a\nlog: {level: warn}\nchecks: [{name: raid, kind: exec, token: a}, {name: gone, kind: exec}]\n"
	before := parse(t, file)
	if same := parse(t, "# a comment\n"+file); len(same.Changes(before)) != 0 {
		t.Errorf("%v", same.Changes(before))
	}
	after := parse(t, "nodeName: b\nhostRoot: /host\nlog: {level: debug}\nchecks: [{name: raid, kind: exec, token: b}, {name: new, kind: exec}]\n")
	if got, want := after.Changes(before), []string{"nodeName", "hostRoot", "log.level", "checks[raid].token", "checks[new]", "checks[gone]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if kept := after.KeepForRun(before); !slices.Equal(kept, []string{"nodeName", "hostRoot"}) || after.NodeName != "a" || after.HostRoot != "/" || after.Log.Level != "debug" {
		t.Errorf("%q %+v", kept, after)
	}
	if got := after.Changes(before); slices.Contains(got, "nodeName") || !slices.Contains(got, "log.level") {
		t.Errorf("%q", got)
	}
	if reordered := parse(t, "nodeName: a\nlog: {level: warn}\nchecks: [{name: gone, kind: exec}, {name: raid, kind: exec, token: a}]\n"); len(reordered.Changes(before)) != 1 {
		t.Errorf("%v", reordered.Changes(before))
	}
}

func TestDocsNameEveryKeyVariableAndFlag(t *testing.T) {
	var first, second bytes.Buffer
	if err := Docs(&first, testKinds); err != nil {
		t.Fatal(err)
	}
	if err := Docs(&second, testKinds); err != nil || first.String() != second.String() {
		t.Errorf("two runs differ, %v", err)
	}
	c := Default(testKinds)
	c.Checks = append(c.Checks, newCheck(testKinds[2], "NAME"))
	general := map[string]bool{}
	for _, s := range strict.Settings(&CheckSettings{}) {
		general[s.Path] = true
	}
	for _, k := range c.keys() {
		_, path, inCheck := strings.Cut(k.Path, "].")
		if general[path] {
			k.variable = variableOf("checks[NAME]." + path)
		}
		if !inCheck {
			path = k.Path
		}
		row := rowOf(first.String(), "| `"+path+"` |", "`"+k.variable+"`")
		if row == "" || (k.flag != "" && !strings.Contains(row, "`--"+k.flag+"`")) || !strings.Contains(row, k.Type) {
			t.Errorf("%s: %q", k.Path, row)
		}
	}
	for _, want := range []string{"### exec", "A template: `- {name: NAME, kind: exec, …}` makes a check.", `how \| why`, "(*secret*: not shown)", "(*restart*)",
		"Defaults: condition `fettle.dev/StorageReady`, interval `30s`, timeout `1s`, failureThreshold `2`, successThreshold `1`, clearing `reboot`, dependsOn `disk`."} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("%q is not in\n%s", want, first.String())
		}
	}
}

func rowOf(page, begin, has string) string {
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, begin) && strings.Contains(line, has) {
			return line
		}
	}
	return ""
}
