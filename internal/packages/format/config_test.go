package format_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fettle-dev/fettle/internal/packages/format"
)

// document is a config.json to be changed by a test.
type document = map[string]any

func valid(t testing.TB) document {
	t.Helper()
	content, err := os.ReadFile("testdata/shellscript.json")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func modes(d document) document { return d["modes"].(document) }
func firstStep(d document, mode string) document {
	return modes(d)[mode].([]any)[0].(document)
}

func parse(t testing.TB, d document) (*format.Package, error) {
	t.Helper()
	content, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return format.Parse("config.json", content)
}

func TestParse(t *testing.T) {
	content, err := os.ReadFile("testdata/shellscript.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := format.Parse("config.json", content)
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) format.Step {
		return format.Step{Name: name, Path: "shellscript_run.sh", Arguments: args, ReturnCodes: []int{0}, OnHost: true, Idempotent: true}
	}
	config, configCheck := run("config", "config"), run("config_check", "config_check")
	config.ReturnCodes, config.Idempotent, config.Env = []int{0, 3}, false, map[string]string{"GREETING": "déjà 😀 /"}
	configCheck.OnHost = false
	want := &format.Package{Name: "shellscript", Version: "1.1.1", ExpectedConfigFiles: []string{}, Steps: map[format.Mode][]format.Step{
		"apply": {run("apply", "apply")}, "apply-check": {run("apply_check", "apply_check")},
		"config": {config}, "config-check": {configCheck},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsRefused(t *testing.T) {
	step := func(mode, key string, value any) func(document) {
		return func(d document) { firstStep(d, mode)[key] = value }
	}
	without := func(mode, key string) func(document) {
		return func(d document) { delete(firstStep(d, mode), key) }
	}
	for _, tc := range []struct {
		name   string
		change func(document)
		says   string // empty: accepted
	}{
		{name: "as it is", change: func(document) {}},
		{name: "another schema", change: func(d document) { d["schema_version"] = "v2" }, says: `schema_version: "v2" is not one of the allowed values (allowed: v1)`},
		{name: "no name", change: func(d document) { delete(d, "package_name") }, says: "package_name: is missing"},
		{name: "a name that is a path", change: func(d document) { d["package_name"] = "../x" }, says: "package_name: \"../x\" cannot name a folder"},
		{name: "a name with an underscore", change: func(d document) { d["package_name"] = "nvidia_setup" }},
		{name: "a loose version", change: func(d document) { d["package_version"] = "1.2" }, says: `package_version: "1.2" is no semantic version`},
		{name: "a version with a leading zero", change: func(d document) { d["package_version"] = "01.2.3" }, says: "package_version"},
		{name: "a pre-release", change: func(d document) { d["package_version"] = "2024.7.7-test+b1" }},
		{name: "no list of expected files", change: func(d document) { delete(d, "expected_config_files") }, says: "expected_config_files: is missing"},
		{name: "an expected file that is a path", change: func(d document) { d["expected_config_files"] = []any{"a", "../b"} }, says: `expected_config_files[1]: "../b" cannot be the key`},
		{name: "no modes", change: func(d document) { delete(d, "modes") }, says: "modes: is missing"},
		{name: "modes without steps", change: func(d document) { d["modes"] = document{"apply": []any{}} }, says: "modes: has no steps"},
		{name: "only checks", change: func(d document) { delete(modes(d), "apply"); delete(modes(d), "config") }, says: "modes: has no steps"},
		{name: "only a check after an interrupt", change: func(d document) {
			d["modes"] = document{"post-interrupt-check": modes(d)["apply-check"]}
		}},
		{name: "a mode without its check", change: func(d document) { delete(modes(d), "config-check") }, says: "modes.config: has steps, and nothing checks"},
		{name: "an unknown mode", change: func(d document) { modes(d)["aply"] = []any{} }, says: `modes.aply: unknown key "aply"; did you mean "apply"?`},
		{name: "a mode that is no list", change: func(d document) { modes(d)["apply"] = "x" }, says: "modes.apply: is"},
		{name: "a step that is no object", change: func(d document) { modes(d)["apply"] = []any{"x"} }, says: "modes.apply[0]: is"},
		{name: "a step without return codes", change: without("apply", "returncodes"), says: "modes.apply[0].returncodes: is missing"},
		{name: "no return codes", change: step("apply", "returncodes", []any{}), says: "could never succeed"},
		{name: "a return code that is text", change: step("apply", "returncodes", []any{"0"}), says: "modes.apply[0].returncodes[0]: is"},
		{name: "a name with a space", change: step("apply", "name", "a b"), says: `modes.apply[0].name: "a b" is not allowed`},
		{name: "a path upwards", change: step("apply", "path", "x/../../y"), says: "leads out of the folder of steps"},
		{name: "an absolute path", change: step("apply", "path", "/bin/sh"), says: "leads out of the folder of steps"},
		{name: "a path in a folder", change: step("apply", "path", "steps/x.sh")},
		{name: "an argument that is a number", change: step("apply", "arguments", []any{1}), says: "modes.apply[0].arguments[0]: is"},
		{name: "on_host that is text", change: step("apply", "on_host", "yes"), says: "modes.apply[0].on_host: is"},
		{name: "an env value that is a number", change: step("apply", "env", document{"A": 1}), says: "modes.apply[0].env.A: is not text"},
		{name: "an env name with a sign", change: step("apply", "env", document{"A=B": "1"}), says: `"A=B" cannot name a variable`},
		{name: "an upgrade step outside of an upgrade", change: step("apply", "upgrade_step", true), says: "is true outside of an upgrade"},
		{name: "an upgrade step with arguments", change: func(d document) {
			firstStep(d, "apply")["upgrade_step"] = true
			modes(d)["upgrade"], modes(d)["upgrade-check"] = modes(d)["apply"], modes(d)["apply"]
			delete(modes(d), "apply")
		}, says: "modes.upgrade[0].arguments: has arguments, and an upgrade step"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := valid(t)
			tc.change(d)
			_, err := parse(t, d)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.says != "" && err == nil:
				t.Error("accepted")
			case tc.says != "" && !strings.Contains(err.Error(), tc.says):
				t.Errorf("the message lacks %q: %v", tc.says, err)
			}
		})
	}
}

func TestAllFaultsComeAtOnceWithTheirLines(t *testing.T) {
	content := `{
  "schema_version": "v1", "package_name": "", "package_version": "1",
  "expected_config_files": [],
  "modes": {"apply": [
    {"name": "a b", "path": "/x"}
  ]}
}`
	_, err := format.Parse("config.json", []byte(content))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`config.json:2: package_name: "" cannot name a folder`, `config.json:2: package_version: "1"`, `config.json:4: modes.apply: has steps, and nothing checks`,
		`config.json:5: modes.apply[0].name: "a b"`, `config.json:5: modes.apply[0].path: "/x"`, "config.json:5: modes.apply[0].returncodes: is missing",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
}

func TestWhatIsNoJSON(t *testing.T) {
	for name, tc := range map[string]struct{ content, says string }{
		"an empty file":     {"", "not valid JSON: line 1"},
		"YAML":              {"schema_version: v1\n", "not valid JSON: line 1"},
		"a trailing comma":  {"{\n\"a\": 1,\n}", "not valid JSON: line 3"},
		"null":              {"null", "is empty"},
		"a list":            {"[]", "a mapping of keys"},
		"more than allowed": {`"` + strings.Repeat("a", format.MaxConfig) + `"`, "more than"},
	} {
		if _, err := format.Parse("config.json", []byte(tc.content)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysThatMeanNothingAreWarnings(t *testing.T) {
	d := valid(t)
	d["comment"] = "x"
	firstStep(d, "apply")["retries"] = 3
	p, err := parse(t, d)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"comment: the key is not known and has no effect", "modes.apply[0].retries: the key is not known and has no effect"}
	if diff := cmp.Diff(want, p.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestFilesOfAPackage(t *testing.T) {
	d := valid(t)
	d["expected_config_files"] = []any{"a.conf", "b.conf"}
	p, err := parse(t, d)
	if err != nil {
		t.Fatal(err)
	}
	only := func(names ...string) func(string) bool {
		return func(name string) bool { return strings.Contains(strings.Join(names, " "), name) }
	}
	faults, warnings := p.Compare(only("skyhook_dir/shellscript_run.sh"))
	if len(faults) > 0 || len(warnings) != 2 || !strings.Contains(warnings[0], "no file skyhook_dir/shellscript_run_check.sh") {
		t.Errorf("%q %q", faults, warnings)
	}
	if faults, _ = p.Compare(only("")); len(faults) != 4 || !strings.Contains(faults[0], "modes.apply[0].path: the package has no file skyhook_dir/shellscript_run.sh") {
		t.Errorf("%q", faults)
	}
	if missing := p.MissingConfig(format.Config, only("a.conf")); len(missing) != 1 || missing[0] != "b.conf" {
		t.Errorf("%q", missing)
	}
	if missing := p.MissingConfig(format.Uninstall, only("")); len(missing) > 0 {
		t.Errorf("uninstalling waits for %q", missing)
	}
}

// Whatever the text, it is read or refused; what is read twice, once as Go's JSON has it, means the same.
func FuzzParse(f *testing.F) {
	content, err := os.ReadFile("testdata/shellscript.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(`{"modes": {"apply": [{"env": {"\ud83d": "\\ud83d\ude00\u007f` + "\u0085\ufeff" + `"}}]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := format.Parse("config.json", content)
		if err != nil || len(p.Warnings) > 0 { // Go takes a key that differs in case for the same
			return
		}
		var plain struct {
			Name  string `json:"package_name"`
			Modes map[string][]struct {
				Arguments []string          `json:"arguments"`
				Env       map[string]string `json:"env"`
			} `json:"modes"`
		}
		if err := json.Unmarshal(content, &plain); err != nil {
			t.Fatalf("accepted what is no such JSON: %v", err)
		}
		if p.Name != plain.Name {
			t.Errorf("name %q, not %q", p.Name, plain.Name)
		}
		for mode, steps := range plain.Modes {
			for i, s := range steps {
				got := p.Steps[format.Mode(mode)][i]
				if strings.Join(got.Arguments, "\x00") != strings.Join(s.Arguments, "\x00") {
					t.Errorf("%s[%d]: arguments %q, not %q", mode, i, got.Arguments, s.Arguments)
				}
				for name, value := range s.Env {
					if got.Env[name] != value {
						t.Errorf("%s[%d]: %s is %q, not %q", mode, i, name, got.Env[name], value)
					}
				}
			}
		}
	})
}
