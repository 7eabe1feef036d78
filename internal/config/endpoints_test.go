package config_test

import (
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

func TestEndpoints(t *testing.T) {
	for _, tc := range []struct{ text, fault string }{
		{"{socket: '', statusFile: ''}", ""},
		{"{socket: /run/a/agent.sock, statusFile: /run/a/status.json}", ""},
		{"{metricsAddress: '127.0.0.1:9190'}", ""},
		{"{metricsAddress: '127.1.2.3:9190'}", ""},
		{"{metricsAddress: '[::1]:9190'}", ""},
		{"{metricsAddress: '0.0.0.0:9190', allowRemote: true}", ""},
		{"{socket: run/agent.sock}", `f.yaml:1: endpoints.socket: "run/agent.sock" is not an absolute path`},
		{"{statusFile: /run/../status.json}", `endpoints.statusFile: "/run/../status.json" is not an absolute path`},
		{"{socket: /" + strings.Repeat("s", 90) + "}", "too long for a socket"},
		{"{metricsAddress: '0.0.0.0:9190'}", `endpoints.metricsAddress: other machines may reach 0.0.0.0 (allowed: a loopback address, or allowRemote: true)`},
		{"{metricsAddress: '10.0.0.7:9190'}", "other machines may reach 10.0.0.7"},
		{"{metricsAddress: '[fe80::1]:9190'}", "other machines may reach fe80::1"},
		{"{metricsAddress: 'localhost:9190'}", `"localhost" is not an IP address`},
		{"{metricsAddress: ':9190'}", `"" is not an IP address`},
		{"{metricsAddress: 'localhost'}", "is not an address with a port"},
		{"{metricsAddress: '127.0.0.1:0'}", "is not an address with a port"},
		{"{metricsAddress: '127.0.0.1:99999'}", "is not an address with a port"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte("endpoints: "+tc.text), catalogue.Kinds())
			switch {
			case tc.fault == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
				t.Errorf("%v, want %q", err, tc.fault)
			}
		})
	}
}
