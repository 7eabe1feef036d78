package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of service-proxy.
const (
	ServiceAddressUnreachable = "ServiceAddressUnreachable"
	ServiceAddressNotTried    = "ServiceAddressNotTried"
)

// serviceProxyReasons are API.
var serviceProxyReasons = reasons.Table{
	{Name: ServiceAddressUnreachable, Severity: reasons.Fatal, Says: "no TCP connection can be opened to the API server's service address", Do: "see whether kube-proxy (or the plugin that replaces it) runs on this machine, and whether its rules are in place"},
	{Name: ServiceAddressNotTried, Severity: reasons.Unknown, Says: "the machine could not try to connect, for a reason of its own", Do: "see the message; the machine may be out of files or of local ports"},
}

// ServiceProxyOptions configure service-proxy.
type ServiceProxyOptions struct {
	Address string `key:"address" doc:"host:port to connect to; empty: KUBERNETES_SERVICE_HOST and _PORT of the agent's environment"`
}

// Validate reports an address that nothing could ever be reached at: that would be taken for a broken network.
func (o ServiceProxyOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if o.Address == "" {
		return
	}
	const allowed = "an IP address or DNS name and a port from 1 to 65535, e.g. 10.96.0.1:443"
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil || host == "" || port == "" {
		fault("the address has no host or no port", allowed, "address")
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		fault(fmt.Sprintf("%q is not a port", port), allowed, "address")
	}
	if _, err := netip.ParseAddr(host); err != nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		fault(fmt.Sprintf("%q is neither an IP address nor a DNS name", host), allowed, "address")
	}
}

// ServiceProxy is the check "service-proxy": can this machine open a TCP connection to the API server's service address?
//
// That address exists only where kube-proxy, or what stands in for it, does its work on this machine, so no answer means
// that services do not work here. The pod must be in the host's network namespace. Every look opens a connection of its
// own and closes it at once without sending anything; a kept one would outlive a proxy that broke.
var ServiceProxy = probes.Define(probes.Kind{
	Name:        "service-proxy",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Opens a TCP connection to the API server's service address, as pods would.",
	Reasons:     serviceProxyReasons,
	Interval:    30 * time.Second,
	Timeout:     3 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
}, func() ServiceProxyOptions { return ServiceProxyOptions{} }, newServiceProxy)

func newServiceProxy(env probes.Env, o ServiceProxyOptions) probes.Probe {
	address := o.Address
	if host, port := env.Getenv("KUBERNETES_SERVICE_HOST"), env.Getenv("KUBERNETES_SERVICE_PORT"); address == "" && host != "" && port != "" {
		address = net.JoinHostPort(host, port)
	}
	if address == "" {
		return probes.Func(func(context.Context) health.Result {
			return probes.NotApplicable("no service address is configured or in the environment")
		})
	}
	return probes.Func(func(ctx context.Context) health.Result {
		dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return judgeDial(ctx, address, err)
		}
		conn.Close()
		return probes.OK("%s answers", address)
	})
}

// judgeDial tells a network that does not work from a look that could not be had. Its messages leave out what differs
// from look to look, such as the local port.
func judgeDial(ctx context.Context, address string, err error) health.Result {
	table := serviceProxyReasons
	var timeout net.Error
	var errno syscall.Errno
	var lookup *net.DNSError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return probes.Because(table, ServiceAddressNotTried, "the look at %s was cut short", address)
	case errors.As(err, &errno) && ours(errno):
		return probes.Because(table, ServiceAddressNotTried, "connecting to %s failed on this machine: %s", address, errno.Error())
	case errors.As(err, &lookup):
		return probes.Because(table, ServiceAddressUnreachable, "the name in %s cannot be resolved", address)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return probes.Because(table, ServiceAddressUnreachable, "%s does not answer within the check's timeout", address)
	case errors.As(err, &errno):
		return probes.Because(table, ServiceAddressUnreachable, "no connection to %s: %s", address, errno.Error())
	default:
		return probes.Because(table, ServiceAddressUnreachable, "no connection to %s", address)
	}
}

// ours says whether a failed call says something of this process or machine rather than of the network.
func ours(e syscall.Errno) bool {
	switch e {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EACCES:
		return true
	}
	return false
}
