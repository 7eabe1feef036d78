package config_test

import (
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// Values that parse but that nothing on earth could be: an agent that took them would wait for ever, or call a machine
// broken that is not.
func TestImpossibleValuesAreRefused(t *testing.T) {
	address := func(a string) string { return "checks:\n- name: service-proxy\n  address: '" + a + "'\n" }
	for _, tc := range []struct{ text, fault string }{
		{"nodeName: A_B\n", `f.yaml:1: nodeName: "A_B" cannot be the name of a Node`},
		{"nodeName: 'a b'\n", `f.yaml:1: nodeName: "a b" cannot be the name of a Node`},
		{"nodeName: " + strings.Repeat("a", 254) + "\n", "cannot be the name of a Node"},
		{"nodeName: gpu-17.rack1\n", ""},
		{address("10.96.0.1:443"), ""},
		{address("[fd00::1]:443"), ""},
		{address("kubernetes.default.svc:443"), ""},
		{address("10.96.0.1"), "f.yaml:3: checks[service-proxy].address: the address has no host or no port"},
		{address("foo:99999"), `f.yaml:3: checks[service-proxy].address: "99999" is not a port`},
		{address("foo:0"), `"0" is not a port`},
		{address("foo:-1"), `"-1" is not a port`},
		{address("foo:http"), `"http" is not a port`},
		{address(" a:1"), `" a" is neither an IP address nor a DNS name`},
	} {
		t.Run(strings.TrimSpace(tc.text), func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(tc.text), catalogue.Kinds())
			switch {
			case tc.fault == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
				t.Errorf("%v, want %q", err, tc.fault)
			}
		})
	}
}
