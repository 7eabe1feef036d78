package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/probes/cni"
	"github.com/fettle-dev/fettle/internal/probes/network"
	"github.com/fettle-dev/fettle/internal/probes/storage"
)

// builtIn are kinds for tests that name all there are.
var builtIn = []probes.Kind{cni.Config, network.ServiceProxy, storage.RootFilesystem}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, args ...string) (config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("nodeagent", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return config.Load(flags, catalogue.Kinds())
}

func TestDefaultsAreValid(t *testing.T) {
	c, err := config.Parse("f.yaml", nil, catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	if c.Heartbeat != (config.Heartbeat{Interval: 10 * time.Second, LeaseDuration: 40 * time.Second, StatusTimeout: 5 * time.Second}) {
		t.Errorf("%+v", c.Heartbeat)
	}
	if c.StateDir != "/var/lib/fettle" || c.HostRoot != "/" || c.Log != (config.Log{Level: "info", Format: "auto"}) {
		t.Errorf("%+v", c)
	}
	builtIn := slices.DeleteFunc(catalogue.Kinds(), func(k probes.Kind) bool { return k.Template })
	if len(c.Checks) != len(builtIn) {
		t.Errorf("%d checks", len(c.Checks))
	}
}

func TestListedChecksOverrideDefaultsAndOthersKeepThem(t *testing.T) {
	c, err := config.Parse("f.yaml", []byte(`
checks:
- name: root-filesystem
  interval: 2m
  path: /var
  spaceFatalBytes: 512Mi
- name: cni-config
  disabled: true
  binDirs: [/opt/bin]
  failureThreshold: 5
- name: service-proxy
  address: "[fd00::1]:443"
`), builtIn)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]config.Check{}
	for _, check := range c.Checks {
		byName[check.Kind.Name] = check
	}
	root := byName["root-filesystem"]
	if root.Settings.Interval != 2*time.Minute || root.Settings.Timeout != storage.RootFilesystem.Timeout {
		t.Errorf("%+v", root.Settings)
	}
	if o := root.Options.(*storage.RootOptions); o.Path != "/var" || o.SpaceFatalBytes != 512<<20 || o.SpaceFatalPercent != 2 {
		t.Errorf("%+v", o)
	}
	if o := byName["cni-config"].Options.(*cni.ConfigOptions); !slices.Equal(o.BinDirs, []string{"/opt/bin"}) || o.ConfigDir != "/etc/cni/net.d" {
		t.Errorf("%+v", o)
	}
	if o := byName["service-proxy"].Options.(*network.ServiceProxyOptions); o.Address != "[fd00::1]:443" {
		t.Errorf("%+v", o)
	}
	looks, checks := catalogue.Build(c.Checks, probes.Env{Getenv: os.Getenv})
	var names []string
	for i := range looks {
		names = append(names, looks[i].Name, checks[i].Name)
	}
	if want := []string{"service-proxy", "service-proxy", "root-filesystem", "root-filesystem"}; !slices.Equal(names, want) {
		t.Errorf("%q run, want %q", names, want)
	}
}

func TestOneParsedConfigurationDoesNotReachAnother(t *testing.T) {
	if _, err := config.Parse("f.yaml", []byte("checks: [{name: cni-config, binDirs: [/x], required: true}]"), catalogue.Kinds()); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("f.yaml", nil, catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Checks[0].Options.(*cni.ConfigOptions); o.Required || len(o.BinDirs) != 2 {
		t.Errorf("%+v", o)
	}
}

func TestFaultsOfAFile(t *testing.T) {
	path := write(t, `nodeName: worker-1
heartbeat:
  interval: 50s
  statusTimeout: fast
log:
  level: loud
checks:
- name: cni-confg
- name: cni-config
  timeout: 1m
  binDirs: []
- name: cni-config
- interval: 5s
- root-filesystem
- name: service-proxy
  address: 10.96.0.1
  failureThreshold: 0
- name: root-filesystem
  spaceFatalPercent: 20
  spaceDegradedBytes: lots
`)
	_, err := config.LoadFile(path, builtIn)
	var faults strict.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("%v", err)
	}
	want := []string{
		`:3: heartbeat.interval: the interval 50s is not shorter than the lease duration 40s (allowed: leaseDuration > interval > statusTimeout)`,
		`:4: heartbeat.statusTimeout: "fast" is not a duration (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, at least 10ms)`,
		`:6: log.level: "loud" is not one of the allowed values (allowed: debug, info, warn, error)`,
		`:8: checks[0].name: unknown check "cni-confg"; did you mean "cni-config"? (allowed: cni-config, service-proxy, root-filesystem)`,
		`:10: checks[cni-config].timeout: the timeout 1m0s is not shorter than the interval 30s (allowed: interval > timeout)`,
		`:11: checks[cni-config].binDirs: the list is empty (allowed: at least one folder)`,
		`:12: checks[2].name: check "cni-config" is listed a second time; the first is in line 9 (allowed: each check once)`,
		`:13: checks[3].name: is missing (allowed: cni-config, service-proxy, root-filesystem)`,
		`:14: checks[4]: is the text "root-filesystem" (allowed: a mapping of keys to values)`,
		`:16: checks[service-proxy].address: the address has no host or no port (allowed: an IP address or DNS name and a port from 1 to 65535, e.g. 10.96.0.1:443)`,
		`:17: checks[service-proxy].failureThreshold: "0" is too small (allowed: a whole number, from 1 to 10)`,
		`:19: checks[root-filesystem].spaceFatalPercent: fatal at 20% is above degraded at 10% (allowed: fatal at or below degraded)`,
		`:20: checks[root-filesystem].spaceDegradedBytes: "lots" is not a size (allowed: a whole number of bytes, or with a unit Ki, Mi, Gi or Ti, e.g. 20Gi)`,
	}
	for i := range want {
		want[i] = path + want[i]
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestPrecedence(t *testing.T) {
	path := write(t, "nodeName: from-file\nheartbeat: {interval: 11s, leaseDuration: 44s}\n")
	t.Run("the file over the default", func(t *testing.T) {
		c, err := load(t, "--config", path)
		if err != nil || c.NodeName != "from-file" || c.Heartbeat.Interval != 11*time.Second || c.Heartbeat.StatusTimeout != 5*time.Second {
			t.Errorf("%+v %v", c, err)
		}
	})
	t.Run("the environment over the file", func(t *testing.T) {
		t.Setenv("FETTLE_NODE_NAME", "from-env")
		t.Setenv("FETTLE_HEARTBEAT_INTERVAL", "12s")
		t.Setenv("FETTLE_HEARTBEAT_STATUS_TIMEOUT", "3s")
		t.Setenv("FETTLE_CONFIG", path)
		c, err := load(t)
		if err != nil || c.NodeName != "from-env" || c.Heartbeat != (config.Heartbeat{Interval: 12 * time.Second, LeaseDuration: 44 * time.Second, StatusTimeout: 3 * time.Second}) {
			t.Errorf("%+v %v", c, err)
		}
	})
	t.Run("the flag over the environment", func(t *testing.T) {
		t.Setenv("FETTLE_NODE_NAME", "from-env")
		t.Setenv("FETTLE_CONFIG", "/does/not/exist")
		c, err := load(t, "--config", path, "--node-name", "from-flag", "--heartbeat-lease-duration=1m")
		if err != nil || c.NodeName != "from-flag" || c.Heartbeat.LeaseDuration != time.Minute {
			t.Errorf("%+v %v", c, err)
		}
	})
	t.Run("an empty variable says nothing", func(t *testing.T) {
		t.Setenv("FETTLE_NODE_NAME", "")
		if c, err := load(t, "--config", path); err != nil || c.NodeName != "from-file" {
			t.Errorf("%+v %v", c, err)
		}
	})
}

func TestEveryScalarHasAVariableAndAFlag(t *testing.T) {
	values := map[string]string{
		"nodeName": "n", "kubeconfig": "/k", "stateDir": "/s", "hostRoot": "/h",
		"heartbeat.interval": "20s", "heartbeat.leaseDuration": "61s", "heartbeat.statusTimeout": "2s",
		"log.level": "debug", "log.format": "json",
		"endpoints.socket": "/e", "endpoints.metricsAddress": "0.0.0.0:1", "endpoints.allowRemote": "true", "endpoints.statusFile": "/f",
	}
	names := map[string][2]string{
		"nodeName": {"FETTLE_NODE_NAME", "node-name"}, "kubeconfig": {"FETTLE_KUBECONFIG", "kubeconfig"}, "stateDir": {"FETTLE_STATE_DIR", "state-dir"}, "hostRoot": {"FETTLE_HOST_ROOT", "host-root"},
		"heartbeat.interval": {"FETTLE_HEARTBEAT_INTERVAL", "heartbeat-interval"}, "heartbeat.leaseDuration": {"FETTLE_HEARTBEAT_LEASE_DURATION", "heartbeat-lease-duration"},
		"heartbeat.statusTimeout": {"FETTLE_HEARTBEAT_STATUS_TIMEOUT", "heartbeat-status-timeout"}, "log.level": {"FETTLE_LOG_LEVEL", "log-level"}, "log.format": {"FETTLE_LOG_FORMAT", "log-format"},
		"endpoints.socket": {"FETTLE_ENDPOINTS_SOCKET", "endpoints-socket"}, "endpoints.metricsAddress": {"FETTLE_ENDPOINTS_METRICS_ADDRESS", "endpoints-metrics-address"},
		"endpoints.allowRemote": {"FETTLE_ENDPOINTS_ALLOW_REMOTE", "endpoints-allow-remote"}, "endpoints.statusFile": {"FETTLE_ENDPOINTS_STATUS_FILE", "endpoints-status-file"},
	}
	defaults := config.Default(nil)
	if all := strict.Scalars(&defaults); len(all) != len(values) {
		t.Fatalf("%d scalar keys, this test knows %d", len(all), len(values))
	}
	want := config.Default(catalogue.Kinds())
	for _, s := range strict.Scalars(&want) {
		strict.NewDecoder("").Set(s, "", values[s.Path])
	}
	var args []string
	for path, name := range names {
		args = append(args, "--"+name[1], values[path])
	}
	path := write(t, "")
	byFlag, err := load(t, append(args, "--config", path)...)
	if err != nil {
		t.Fatal(err)
	}
	for path, name := range names {
		t.Setenv(name[0], values[path])
	}
	byEnv, err := load(t, "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	for source, got := range map[string]config.Config{"flags": byFlag, "environment": byEnv} {
		if got.Checks, want.Checks = nil, nil; !reflect.DeepEqual(got, want) {
			t.Errorf("by %s: %+v, want %+v", source, got, want)
		}
	}
}

func TestEveryKeySaysWhatItSets(t *testing.T) {
	structs := []any{config.Config{}, config.CheckSettings{}}
	for _, k := range catalogue.Kinds() {
		structs = append(structs, reflect.ValueOf(k.NewOptions()).Elem().Interface())
	}
	for len(structs) > 0 {
		kind := reflect.TypeOf(structs[0])
		for i := range kind.NumField() {
			field := kind.Field(i)
			if field.Tag.Get("key") == "" {
				continue
			}
			if field.Tag.Get("doc") == "" {
				t.Errorf("%s.%s has no doc", kind, field.Name)
			}
			if field.Type.Kind() == reflect.Struct {
				structs = append(structs, reflect.Zero(field.Type).Interface())
			}
		}
		structs = structs[1:]
	}
}

func TestFaultsOfEnvironmentAndFlagsNameTheirSource(t *testing.T) {
	path := write(t, "log: {level: loud}\n")
	t.Setenv("FETTLE_HEARTBEAT_INTERVAL", "10")
	t.Setenv("FETTLE_LOG_FORMAT", "xml")
	_, err := load(t, "--config", path, "--state-dir", "relative", "--log-format", "yml")
	if err == nil {
		t.Fatal("no faults")
	}
	want := []string{
		path + `:1: log.level: "loud" is not one of the allowed values (allowed: debug, info, warn, error)`,
		`flag --state-dir: stateDir: "relative" is not an absolute path (allowed: an absolute path without "..")`,
		`environment FETTLE_HEARTBEAT_INTERVAL: heartbeat.interval: "10" is not a duration (allowed: a duration with a unit, e.g. 500ms, 30s or 2m, at least 100ms)`,
		`flag --log-format: log.format: "yml" is not one of the allowed values (allowed: auto, text, json, journal)`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestHeartbeatOrder(t *testing.T) {
	for _, tc := range []struct{ name, env, value, want string }{
		{name: "lease not longer than interval", env: "FETTLE_HEARTBEAT_LEASE_DURATION", value: "10s",
			want: `environment FETTLE_HEARTBEAT_LEASE_DURATION: heartbeat.leaseDuration: the interval 10s is not shorter than the lease duration 10s (allowed: leaseDuration > interval > statusTimeout)`},
		{name: "interval not longer than timeout", env: "FETTLE_HEARTBEAT_INTERVAL", value: "5s",
			want: `environment FETTLE_HEARTBEAT_INTERVAL: heartbeat.interval: the status timeout 5s is not shorter than the interval 5s (allowed: leaseDuration > interval > statusTimeout)`},
		{name: "a lease of a fraction of a second", env: "FETTLE_HEARTBEAT_LEASE_DURATION", value: "40500ms",
			want: `environment FETTLE_HEARTBEAT_LEASE_DURATION: heartbeat.leaseDuration: 40.5s is not a whole number of seconds, which is what a Lease can hold (allowed: e.g. 40s)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(tc.env, tc.value)
			if _, err := load(t, "--config", write(t, "")); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := os.Stat(config.DefaultPath); err == nil {
		t.Fatalf("this machine has %s; the test needs one without", config.DefaultPath)
	}
	if c, err := load(t); err != nil || c.StateDir != "/var/lib/fettle" {
		t.Errorf("without the default file: %v", err)
	}
	// Named, also by its default name, the file must be there.
	for _, path := range []string{filepath.Join(t.TempDir(), "missing.yaml"), config.DefaultPath} {
		if _, err := load(t, "--config", path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s named and missing: %v", path, err)
		}
	}
	if _, err := load(t, "--config", t.TempDir()); err == nil {
		t.Error("a folder is a configuration file")
	}
}

// A kubelet mounts a ConfigMap as links through a folder that it swaps.
func TestFileMountedFromAConfigMap(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []error{
		os.Mkdir(filepath.Join(dir, "..2030_01_01"), 0o755),
		os.WriteFile(filepath.Join(dir, "..2030_01_01", "nodeagent.yaml"), []byte("nodeName: mounted\n"), 0o644),
		os.Symlink("..2030_01_01", filepath.Join(dir, "..data")),
		os.Symlink("..data/nodeagent.yaml", filepath.Join(dir, "nodeagent.yaml")),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if c, err := load(t, "--config", filepath.Join(dir, "nodeagent.yaml")); err != nil || c.NodeName != "mounted" {
		t.Errorf("%+v %v", c, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "nodeName: a\n", "checks:\n- name: cni-config\n  binDirs: [/a]\n", "checks: [{name: [a]}, 1, null, {}]\n", "a: &x [*x]\n", "<<: {a: b}\n",
		"? {a: b}\n: c\n", "---\n---\n", "heartbeat: {interval: 1s}\n", "!!binary x: y\n", "\"\\xff\": |\n  a\n", "checks: {name: x}\n", "- - - - a\n", "%YAML 1.3\n---\na: 1\n",
	} {
		f.Add([]byte(seed))
	}
	kinds := catalogue.Kinds()
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := config.Parse("f.yaml", content, kinds)
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.yaml") {
					t.Errorf("a fault without its place: %q", line)
				}
			}
			return
		}
		h := c.Heartbeat
		if h.LeaseDuration <= h.Interval || h.Interval <= h.StatusTimeout || h.StatusTimeout <= 0 {
			t.Errorf("accepted %+v", h)
		}
		for _, check := range c.Checks {
			if s := check.Settings; s.Timeout <= 0 || s.Interval <= s.Timeout || s.FailureThreshold < 1 || s.SuccessThreshold < 1 || s.Name == "" || s.Kind != check.Kind.Name || check.Kind.Template == (s.Name == s.Kind) {
				t.Errorf("accepted %+v", s)
			}
		}
	})
}
