package catalogue_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/reasons"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
)

// conditions are the types that built-in checks feed. They are API.
var conditions = []string{
	"fettle.dev/Healthy", "fettle.dev/AgentReady", "fettle.dev/GPUReady", "fettle.dev/KernelReady", "fettle.dev/NetworkReady",
	"fettle.dev/RuntimeReady", "fettle.dev/StorageReady",
}

func TestKindsAreDeclaredInFull(t *testing.T) {
	names, said := map[string]bool{}, map[string]string{}
	for _, k := range catalogue.Kinds() {
		if !regexp.MustCompile(`^[a-z][a-z-]+[a-z]$`).MatchString(k.Name) || names[k.Name] {
			t.Errorf("name %q", k.Name)
		}
		names[k.Name] = true
		if !slices.Contains(conditions, k.Condition) {
			t.Errorf("%s feeds %s, which the API does not name", k.Name, k.Condition)
		}
		if k.Description == "" || k.Timeout <= 0 || k.Interval <= k.Timeout || k.Thresholds.Failure < 1 || k.Thresholds.Success < 1 {
			t.Errorf("%s: %+v", k.Name, k)
		}
		for _, r := range append(slices.Clone(k.Reasons), probes.Common...) {
			if !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(r.Name) || r.Says == "" || r.Do == "" {
				t.Errorf("%s: %+v", k.Name, r)
			}
			if !slices.Contains([]reasons.Severity{reasons.Degraded, reasons.Fatal, reasons.Unknown}, r.Severity) {
				t.Errorf("%s: reason %s has the severity %q", k.Name, r.Name, r.Severity)
			}
			if other, twice := said[r.Name]; twice && other != r.Says {
				t.Errorf("the reason %s means two things", r.Name)
			}
			said[r.Name] = r.Says
		}
	}
}

// An option by the name of a key that every check has could not be set.
func TestOptionsHaveNamesOfTheirOwn(t *testing.T) {
	var common []string
	for _, s := range strict.Settings(&config.CheckSettings{}) {
		key, _, _ := strings.Cut(s.Path, ".")
		common = append(common, key)
	}
	for _, k := range catalogue.Kinds() {
		for _, s := range strict.Settings(k.NewOptions()) {
			if key, _, _ := strings.Cut(s.Path, "."); slices.Contains(common, key) {
				t.Errorf("%s has an option %q", k.Name, s.Path)
			}
		}
	}
}

func TestKindsDependOnChecksThatExist(t *testing.T) {
	for _, k := range catalogue.Kinds() {
		for _, on := range k.DependsOn {
			if !slices.ContainsFunc(catalogue.Kinds(), func(k probes.Kind) bool { return k.Name == on && !k.Template }) {
				t.Errorf("%s depends on %q, which does not exist", k.Name, on)
			}
		}
	}
}

// Whatever this machine is like, every probe answers in time with what it declares.
func TestEveryKindLooksAtThisMachine(t *testing.T) {
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c, err := config.Parse("", nil, catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	looks, checks := catalogue.Build(c.Checks, probes.Env{Host: host, Getenv: os.Getenv, Sockets: unixgrpc.New()})
	if len(looks) != len(c.Checks) || len(checks) != len(looks) {
		t.Fatalf("%d configured, %d looks, %d checks", len(c.Checks), len(looks), len(checks))
	}
	for i, l := range looks {
		began := time.Now()
		r := l.Probe.Run(t.Context())
		if r.Reason == probes.ReasonUndeclared || r.Message == "" || r.Message != health.Normalise(r.Message) {
			t.Errorf("%s: %+v", l.Name, r)
		}
		if took := time.Since(began); took > l.Timeout {
			t.Errorf("%s took %s", l.Name, took)
		}
		if checks[i].Name != l.Name {
			t.Errorf("check %d is %s for the engine, %s for the scheduler", i, checks[i].Name, l.Name)
		}
	}
}
