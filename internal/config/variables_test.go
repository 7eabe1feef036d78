package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

func TestVariablesOfChecks(t *testing.T) {
	file := []byte("checks: [{name: raid-1, kind: exec, mode: two}]\n")
	c, err := sourceWith(
		"FETTLE_CHECKS_RAID_1_COMMAND=/bin/raid, --all",
		"FETTLE_CHECKS_RAID_1_CODES=1,2",
		"FETTLE_CHECKS_RAID_1_ENVIRONMENT=[{name: A, value: 'b, c'}]",
		"FETTLE_CHECKS_RAID_1_NESTED_URL_PATH=/x",
		"FETTLE_CHECKS_RAID_1_LIMIT=4Ki",
		"FETTLE_CHECKS_RAID_1_FLAPPING_WITHIN=1h",
		"FETTLE_CHECKS_RAID_1_MIN_HOLD=1m",
		"FETTLE_CHECKS_RAID_1_CONDITION=a.b/C",
		"FETTLE_CHECKS_RAID_1_MODE=",
		"FETTLE_CHECKS_DISK_INTERVAL=10s",
		"FETTLE_CHECKS_DISK_DISABLED=true",
		"FETTLE_CHECKS_DISK_SPACE_DEPENDS_ON=[]",
		"FETTLE_CHECKS_DISK_SPACE_CLEARING=looks",
		"FETTLE_CHECKS_DISK_SPACE_COMMAND=[\"a, b\", c]",
	).Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	raid, o := c.check("raid-1").Settings, c.check("raid-1").Options.(*toolOptions)
	if !slices.Equal(o.Command, []string{"/bin/raid", "--all"}) || !slices.Equal(o.Codes, []int{1, 2}) || !slices.Equal(o.Environment, []variable{{"A", "b, c"}}) ||
		o.Nested.URLPath != "/x" || o.Limit != probes.Bytes(4096) || o.Mode != "two" {
		t.Errorf("%+v", o)
	}
	if raid.Flapping.Within != time.Hour || raid.MinHold != time.Minute || raid.Condition != "a.b/C" {
		t.Errorf("%+v", raid)
	}
	disk, space := c.check("disk").Settings, c.check("disk-space")
	if disk.Interval != 10*time.Second || !disk.Disabled || disk.StaleAfter != 31*time.Second {
		t.Errorf("%+v", disk)
	}
	if len(space.Settings.DependsOn) != 0 || space.Settings.Clearing != health.ClearByLooks || !slices.Equal(space.Options.(*toolOptions).Command, []string{"a, b", "c"}) {
		t.Errorf("%+v", space)
	}
}

func TestFaultsOfVariables(t *testing.T) {
	const listed = " (allowed: the variables that `nodeagent config docs` lists)"
	for _, tc := range []struct {
		name, file string
		environ    []string
		want       []string
	}{
		{"a mistyped variable", "", []string{"FETTLE_HEARTBEAT_INTERVALL=1s"}, []string{
			`environment FETTLE_HEARTBEAT_INTERVALL: unknown variable "FETTLE_HEARTBEAT_INTERVALL"; did you mean "FETTLE_HEARTBEAT_INTERVAL"?` + listed}},
		{"a variable of a check that does not exist", "", []string{"FETTLE_CHECKS_DISC_INTERVAL=1s"}, []string{
			`environment FETTLE_CHECKS_DISC_INTERVAL: unknown variable "FETTLE_CHECKS_DISC_INTERVAL"; did you mean "FETTLE_CHECKS_DISK_INTERVAL"?` + listed}},
		{"a variable for a check that the file has at fault is not a second fault", "checks: [{name: raid, kind: exek}]", []string{"FETTLE_CHECKS_RAID_INTERVAL=1s"}, []string{
			`/etc/fettle/nodeagent.yaml:1: checks[0].kind: unknown kind "exek"; did you mean "exec"? (allowed: exec)`}},
		{"a name cannot be set", "", []string{"FETTLE_CHECKS_DISK_NAME=a"}, []string{
			`environment FETTLE_CHECKS_DISK_NAME: unknown variable "FETTLE_CHECKS_DISK_NAME"` + listed}},
		{"an empty variable says nothing, whatever it is called", "", []string{"FETTLE_WEATHER="}, nil},
		{"the file's name, and what tests and tools read", "", []string{"FETTLE_CONFIG=/etc/fettle/nodeagent.yaml", "FETTLE_CACHE=/c", "FETTLE_TEST_ANYTHING=1"}, nil},
		{"other programs' variables", "", []string{"FETTLEX=1", "PATH=/bin", "fettle_x=1"}, nil},
		{"Services of the pod's namespace", "", []string{
			"FETTLE_CONTROLLER_SERVICE_HOST=10.0.0.1", "FETTLE_CONTROLLER_SERVICE_PORT=443", "FETTLE_CONTROLLER_SERVICE_PORT_HTTPS=443", "FETTLE_CONTROLLER_PORT=tcp://10.0.0.1:443",
			"FETTLE_CONTROLLER_PORT_443_TCP=tcp://10.0.0.1:443", "FETTLE_CONTROLLER_PORT_443_TCP_PROTO=tcp", "FETTLE_CONTROLLER_PORT_443_TCP_PORT=443", "FETTLE_CONTROLLER_PORT_443_TCP_ADDR=10.0.0.1",
			"FETTLE_SERVICE_HOST=10.0.0.2", "FETTLE_SERVICE_PORT=80", "FETTLE_PORT=tcp://10.0.0.2:80"}, nil},
		{"what only looks like one", "", []string{"FETTLE_CONTROLLER_PORT=1"}, []string{`environment FETTLE_CONTROLLER_PORT: unknown variable "FETTLE_CONTROLLER_PORT"` + listed}},
		{"a variable that means two keys", "checks: [{name: disk-flapping, kind: exec}]", []string{"FETTLE_CHECKS_DISK_FLAPPING_INTERVAL=10s"}, nil},
		{"an item of a list", "", []string{"FETTLE_CHECKS_DISK_CODES=1,two,300"}, []string{
			`environment FETTLE_CHECKS_DISK_CODES: checks[disk].codes[1]: "two" is not a whole number (allowed: a whole number, from 1 to 255)`,
			`environment FETTLE_CHECKS_DISK_CODES: checks[disk].codes[2]: "300" is too large (allowed: a whole number, from 1 to 255)`}},
		{"a list in brackets", "", []string{"FETTLE_CHECKS_DISK_CODES=[1, two]"}, []string{
			`environment FETTLE_CHECKS_DISK_CODES: checks[disk].codes[1]: is the text "two" (allowed: a whole number, from 1 to 255)`}},
		{"brackets that do not close", "", []string{"FETTLE_CHECKS_DISK_CODES=[1"}, []string{
			"environment FETTLE_CHECKS_DISK_CODES: checks[disk].codes: not valid YAML: did not find expected ',' or ']'"}},
		{"a list of mappings with commas", "", []string{"FETTLE_CHECKS_DISK_ENVIRONMENT=a,b"}, []string{
			`environment FETTLE_CHECKS_DISK_ENVIRONMENT: checks[disk].environment: is not a list of mappings (allowed: mappings in brackets, e.g. [{name: a, value: b}])`}},
		{"text that is no UTF-8", "", []string{"FETTLE_KUBECONFIG=\xff"}, []string{`environment FETTLE_KUBECONFIG: kubeconfig: is not valid UTF-8 (allowed: text)`}},
		{"what contradicts the file is the variable's fault", "heartbeat: {leaseDuration: 20s}", []string{"FETTLE_HEARTBEAT_INTERVAL=30s"}, []string{
			`environment FETTLE_HEARTBEAT_INTERVAL: heartbeat.interval: the interval 30s is not shorter than the lease duration 20s (allowed: leaseDuration > interval > statusTimeout)`}},
		{"a cycle that a variable closes", "", []string{"FETTLE_CHECKS_DISK_DEPENDS_ON=disk-space"}, []string{
			`environment FETTLE_CHECKS_DISK_DEPENDS_ON: checks[disk].dependsOn: checks depend on each other: disk → disk-space → disk (allowed: no cycle)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := sourceWith(tc.environ...).Parse([]byte(tc.file))
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

func TestAVariableThatMeansTwoKeysIsRefusedWhenItIsSet(t *testing.T) {
	file := []byte("checks: [{name: disk-nested-url, kind: exec}, {name: disk-nested, kind: exec}]\n")
	type extra struct {
		Path string `key:"path" doc:"a path"`
	}
	kinds := append(slices.Clone(testKinds[:2]), probes.Define(testKinds[2], func() extra { return extra{} }, func(probes.Env, extra) probes.Probe { return nil }))
	s := Source{over: newOverlay(nil, nil), kinds: kinds}
	if _, err := s.Parse(file); err != nil {
		t.Fatalf("not set: %v", err)
	}
	s.over = newOverlay(nil, []string{"FETTLE_CHECKS_DISK_NESTED_URL_PATH=/a"})
	_, err := s.Parse(file)
	want := `environment FETTLE_CHECKS_DISK_NESTED_URL_PATH: checks[disk-nested-url].path: the variable sets checks[disk].nested.urlPath too (allowed: another name for one of the checks)`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// Tests, tools and benchmarks of this repository read variables of their own, which agents that they start inherit.
func TestVariablesOfTheRepositoryAreNoFaults(t *testing.T) {
	read := regexp.MustCompile(`(?:Getenv|LookupEnv)\("(FETTLE_[A-Z_]+)"\)`)
	found := 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range read.FindAllStringSubmatch(string(content), -1) {
			found++
			if _, err := sourceWith(m[1] + "=1").Parse(nil); err != nil {
				t.Errorf("%s reads a variable that the agent refuses; add it to otherVariables: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || found < 3 {
		t.Errorf("%d variables, %v", found, err)
	}
}
