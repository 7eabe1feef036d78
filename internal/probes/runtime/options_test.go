package runtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
)

func TestOptionsThatCannotBeMeant(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options strict.Validator
		want    string // keys at fault
	}{
		{"an endpoint", runtime.ContainerRuntimeOptions{Endpoint: "unix:///run/crio/crio.sock"}, ""},
		{"a path alone", runtime.ContainerRuntimeOptions{Endpoint: "/run/crio/crio.sock"}, "endpoint"},
		{"a relative path", runtime.ContainerRuntimeOptions{Endpoint: "unix://run/crio.sock"}, "endpoint"},
		{"TCP", runtime.RuntimeNetworkOptions{Endpoint: "tcp://127.0.0.1:3735"}, "endpoint"},
		{"an address", runtime.KubeletOptions{Address: "[::1]:10248"}, ""},
		{"an address without a port", runtime.KubeletOptions{Address: "127.0.0.1"}, "address"},
		{"port 0", runtime.KubeletOptions{Address: "127.0.0.1:0"}, "address"},
		{"units", runtime.UnitsOptions{Units: []string{"kubelet.service", `dev-disk-by\x2dlabel-data.mount`, "getty@tty1.service"}, InstalledUnits: []string{"kubelet.service"}, OptionalUnits: []string{"a.timer"}}, ""},
		{"a unit without its type", runtime.UnitsOptions{Units: []string{"kubelet"}}, "units[0]"},
		{"a template", runtime.UnitsOptions{OptionalUnits: []string{"getty@.service"}}, "optionalUnits[0]"},
		{"a pattern", runtime.UnitsOptions{InstalledUnits: []string{"k*.service"}}, "installedUnits[0]"},
		{"a unit twice", runtime.UnitsOptions{Units: []string{"a.service", "a.service"}}, "units[1] units[0]"},
		{"a unit that must and should run", runtime.UnitsOptions{Units: []string{"a.service"}, OptionalUnits: []string{"a.service"}}, "optionalUnits[0] units[0]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var faults []string
			tc.options.Validate(func(_, allowed string, keys ...string) {
				if allowed == "" {
					t.Error("what is allowed is not said")
				}
				faults = append(faults, keys...)
			})
			if got := strings.Join(faults, " "); got != tc.want {
				t.Errorf("at fault: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDefaultsAreValid(t *testing.T) {
	o := *runtime.Units.NewOptions().(*runtime.UnitsOptions)
	o.Validate(func(what, _ string, _ ...string) { t.Error(what) })
	if o.RestartsWindow != 20*time.Minute || o.RestartsDegraded != 5 {
		t.Errorf("%+v", o)
	}
}
