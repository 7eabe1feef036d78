package catalogue_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/internal/reasons"
)

func TestKindsAreDeclaredInFull(t *testing.T) {
	names, said := map[string]bool{}, map[string]string{}
	for _, k := range catalogue.Kinds() {
		if !regexp.MustCompile(`^[a-z][a-z-]+[a-z]$`).MatchString(k.Name) || names[k.Name] {
			t.Errorf("name %q", k.Name)
		}
		names[k.Name] = true
		if !slices.Contains([]string{v1alpha1.ConditionNetworkReady, v1alpha1.ConditionStorageReady}, k.Condition) {
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
	looks, checks := catalogue.Build(c.Checks, probes.Env{Host: host, Getenv: os.Getenv})
	if len(looks) != len(catalogue.Kinds()) || len(checks) != len(looks) {
		t.Fatalf("%d kinds, %d looks, %d checks", len(catalogue.Kinds()), len(looks), len(checks))
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
