package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
)

// Endpoints sets where a running agent can be asked how it does.
type Endpoints struct {
	Socket         string `key:"socket" doc:"unix socket on which root may ask the agent for status and metrics; empty: none"`
	MetricsAddress string `key:"metricsAddress" doc:"address for metrics and health, e.g. 127.0.0.1:9190; it must be a loopback one unless allowRemote is set; empty: none"`
	AllowRemote    bool   `key:"allowRemote" doc:"metricsAddress may be one that other machines reach; nothing there is encrypted or asks who you are"`
	StatusFile     string `key:"statusFile" doc:"file in which the agent's status lies for everybody to read; empty: none"`
}

// DefaultEndpoints lie in the folder that the systemd unit makes for the agent.
func DefaultEndpoints() Endpoints {
	return Endpoints{Socket: "/run/fettle/agent.sock", StatusFile: "/run/fettle/status.json"}
}

// Validate reports paths that no file can have here, and an address that is none or is open to more than it may be.
func (e Endpoints) Validate(fault func(what, allowed string, keys ...string)) {
	for _, file := range []struct{ key, path string }{{"socket", e.Socket}, {"statusFile", e.StatusFile}} {
		if file.path != "" && (!path.IsAbs(file.path) || path.Clean(file.path) != file.path) {
			fault(fmt.Sprintf("%q is not an absolute path", file.path), "an absolute path without \"..\" parts, or an empty text", file.key)
		}
	}
	const longest = 90 // sun_path of unix(7) holds 107 bytes; the socket is made under a longer name and renamed
	if len(e.Socket) > longest {
		fault(fmt.Sprintf("the path is %d bytes long, too long for a socket", len(e.Socket)), fmt.Sprintf("at most %d bytes", longest), "socket")
	}
	if e.MetricsAddress == "" {
		return
	}
	const form = "an IP address and a port, e.g. 127.0.0.1:9190 or [::1]:9190"
	host, port, err := net.SplitHostPort(e.MetricsAddress)
	number, notANumber := strconv.ParseUint(port, 10, 16)
	if err != nil || notANumber != nil || number == 0 {
		fault(fmt.Sprintf("%q is not an address with a port", e.MetricsAddress), form, "metricsAddress")
		return
	}
	switch address, err := netip.ParseAddr(host); {
	case err != nil:
		fault(fmt.Sprintf("%q is not an IP address", host), form, "metricsAddress")
	case !address.IsLoopback() && !e.AllowRemote:
		fault(fmt.Sprintf("other machines may reach %s", host), "a loopback address, or allowRemote: true", "metricsAddress", "allowRemote")
	}
}
