package custom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of tcp.
const (
	TCPUnreachable = "TCPUnreachable"
	TCPNotAsked    = "TCPNotAsked"
)

// tcpReasons are API.
var tcpReasons = reasons.Table{
	{Name: TCPUnreachable, Severity: reasons.Fatal, Says: "the address takes no connection", Do: "see whether what listens there runs, and whether the way there is open from this machine"},
	{Name: TCPNotAsked, Severity: reasons.Unknown, Says: "no connection could be tried, for a reason of the machine's own", Do: "see the message; the machine may be out of files or of local ports"},
}

// TCPOptions configure a tcp check.
type TCPOptions struct {
	Address string `key:"address" doc:"host:port to connect to; a name is looked up as the machine does"`
	Reason  Reason `key:"reason" doc:"a name of your own for an address that takes no connection; empty: TCPUnreachable"`
}

// Validate reports what is no address.
func (o TCPOptions) Validate(fault func(what, allowed string, keys ...string)) {
	host, port, err := net.SplitHostPort(o.Address)
	if n, numberErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numberErr != nil || n == 0 {
		fault(fmt.Sprintf("%q is not an address with a port", o.Address), "host:port, e.g. 10.0.0.1:6443, [fd00::1]:443 or storage.example.com:3260", "address")
	}
	o.Reason.validate(tcpReasons, fault)
}

// OwnReasons declares the user's reason.
func (o TCPOptions) OwnReasons() reasons.Table { return o.Reason.declared() }

// TCP is the kind "tcp": does an address take connections?
//
// The connection is closed as soon as it stands, and nothing is sent over it. The agent looks from the machine's own
// network.
var TCP = probes.Define(probes.Kind{
	Name:        "tcp",
	Condition:   health.AggregateType,
	Description: "Connects to an address over TCP.",
	Reasons:     tcpReasons,
	Interval:    30 * time.Second,
	Timeout:     3 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
	Template:    true,
}, func() TCPOptions { return TCPOptions{} }, func(_ probes.Env, o TCPOptions) probes.Probe { return tcpLook{o} })

type tcpLook struct{ TCPOptions }

func (l tcpLook) Run(ctx context.Context) health.Result {
	connection, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", l.Address)
	switch {
	case err == nil:
		connection.Close()
		return probes.OK("%s takes connections", l.Address)
	case ownLack(err):
		return probes.Because(tcpReasons, TCPNotAsked, "connect to %s: %s", l.Address, plain(err))
	default:
		return l.Reason.instead(probes.Because(tcpReasons, TCPUnreachable, "connect to %s: %s", l.Address, plain(err)), TCPUnreachable)
	}
}

// plain words an error without the port that this end of a connection happened to get, which changes each time.
func plain(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "look up the host: " + dns.Err
	case errors.As(err, &op):
		var call *os.SyscallError
		if errors.As(op.Err, &call) {
			return call.Err.Error()
		}
		return op.Err.Error()
	default:
		return err.Error()
	}
}
