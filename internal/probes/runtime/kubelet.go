package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of kubelet.
const (
	KubeletUnreachable = "KubeletUnreachable"
	KubeletUnhealthy   = "KubeletUnhealthy"
	KubeletNotAsked    = "KubeletNotAsked"
)

// kubeletReasons are API.
var kubeletReasons = reasons.Table{
	{Name: KubeletUnreachable, Severity: reasons.Fatal, Says: "the kubelet does not answer on its health address", Do: "see whether its service runs and what its journal says (journalctl -u kubelet)"},
	{Name: KubeletUnhealthy, Severity: reasons.Fatal, Says: "the kubelet says that it is not healthy", Do: "see the message, which is the kubelet's own, and its journal; syncloop fails when the container runtime has not answered the kubelet for minutes"},
	{Name: KubeletNotAsked, Severity: reasons.Unknown, Says: "the kubelet could not be asked, for a reason of the agent's own", Do: "see the message; the machine may be out of files or of local ports"},
}

// KubeletOptions configure kubelet.
type KubeletOptions struct {
	Address  string `key:"address" doc:"host:port on which the kubelet serves /healthz; empty: as the kubelet is set to, 127.0.0.1:10248 unless told otherwise"`
	Required bool   `key:"required" doc:"a machine without a kubelet is at fault; otherwise the check does not apply to it"`
}

// Validate reports an address that cannot be connected to.
func (o KubeletOptions) Validate(fault func(what, allowed string, keys ...string)) {
	if o.Address == "" {
		return
	}
	const allowed = "an IP address and a port from 1 to 65535, e.g. 127.0.0.1:10248"
	if at, err := netip.ParseAddrPort(o.Address); err != nil || at.Port() == 0 {
		fault(fmt.Sprintf("%q is not an address with a port", o.Address), allowed, "address")
	}
}

// Kubelet is the check "kubelet": does the kubelet say that it is healthy?
//
// It asks for /healthz on the loopback address (healthzBindAddress and healthzPort of the kubelet's configuration), over
// a new connection each time, without credentials. The check applies where a kubelet has ever run (/var/lib/kubelet
// exists) or an address is configured, and not where the kubelet's health server is switched off (healthzPort: 0). The
// agent must be in the machine's network namespace.
//
// It does not depend on container-runtime: a kubelet that lost its runtime goes on saying for minutes that it is healthy,
// so that one which does not has most often a fault of its own.
var Kubelet = probes.Define(probes.Kind{
	Name:        "kubelet",
	Condition:   "fettle.dev/RuntimeReady",
	Description: "Asks the kubelet on its local address whether it is healthy.",
	Reasons:     kubeletReasons,
	Interval:    15 * time.Second,
	Timeout:     3 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
}, func() KubeletOptions { return KubeletOptions{} }, func(env probes.Env, o KubeletOptions) probes.Probe {
	return kubeletLook{host: env.Host, KubeletOptions: o, client: http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
})

type kubeletLook struct {
	host   *hostfs.Root
	client http.Client
	KubeletOptions
}

func (l kubeletLook) Run(ctx context.Context) health.Result {
	address, none := l.address()
	if none != nil {
		return *none
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	if err != nil {
		return probes.Because(kubeletReasons, KubeletNotAsked, "the kubelet's setting: %s is no address", address)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return judgeNoAnswer(ctx, address, err)
	}
	defer response.Body.Close()
	body := bufio.NewScanner(io.LimitReader(response.Body, maxBody))
	return judgeAnswer(response.StatusCode, body)
}

// maxBody bounds what is read of the kubelet's answer, in bytes.
const maxBody = 16 << 10

// address is where the kubelet serves its health, or why there is nothing to ask.
func (l kubeletLook) address() (address string, none *health.Result) {
	if l.Address != "" {
		return l.Address, nil
	}
	if _, err := l.host.Stat(kubeletDir); err != nil && !l.Required {
		r := probes.NotApplicable("no kubelet has run here: %s does not exist", kubeletDir)
		if !errors.Is(err, fs.ErrNotExist) {
			r = probes.Because(kubeletReasons, KubeletNotAsked, "%v", err)
		}
		return "", &r
	}
	s := readKubeletSettings(l.host)
	if s.HealthzPort != nil && *s.HealthzPort == 0 {
		r := probes.NotApplicable("the kubelet is set to serve no health (healthzPort is 0)")
		return "", &r
	}
	return healthzAddress(s), nil
}

// healthzAddress is where a kubelet with these settings can be asked; the defaults are those of KubeletConfiguration.
func healthzAddress(s kubeletSettings) string {
	host, port := "127.0.0.1", 10248
	if s.HealthzPort != nil {
		port = *s.HealthzPort
	}
	switch bound, err := netip.ParseAddr(s.HealthzBindAddress); {
	case s.HealthzBindAddress == "":
	case err != nil:
		host = s.HealthzBindAddress
	case bound.IsUnspecified() && bound.Is6():
		host = "::1"
	case !bound.IsUnspecified():
		host = bound.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func judgeNoAnswer(ctx context.Context, address string, err error) health.Result {
	var errno syscall.Errno
	var timeout net.Error
	switch isErrno := errors.As(err, &errno); {
	case errors.Is(ctx.Err(), context.Canceled):
		return probes.Because(kubeletReasons, KubeletNotAsked, "the look at %s was cut short", address)
	case isErrno && (ours(errno) || errno == syscall.EADDRNOTAVAIL):
		return probes.Because(kubeletReasons, KubeletNotAsked, "connecting to %s failed on the agent's side: %s", address, errno.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		return probes.Because(kubeletReasons, KubeletUnreachable, "%s does not answer within the check's timeout", address)
	case isErrno:
		return probes.Because(kubeletReasons, KubeletUnreachable, "no connection to %s: %s", address, errno.Error())
	default:
		return probes.Because(kubeletReasons, KubeletUnreachable, "what listens on %s does not answer in HTTP", address)
	}
}

// judgeAnswer tells by the status code alone; of the body it shows the line that names what failed, else the first.
func judgeAnswer(code int, body *bufio.Scanner) health.Result {
	if code == http.StatusOK {
		return probes.OK("the kubelet says that it is healthy")
	}
	var said string
	for body.Scan() {
		line := strings.TrimSpace(body.Text())
		if said == "" {
			said = line
		}
		if strings.HasPrefix(line, "[-]") { // as in "[-]syncloop failed: reason withheld"
			said = line
			break
		}
	}
	if said == "" {
		said = strings.ToLower(http.StatusText(code))
	}
	return probes.Because(kubeletReasons, KubeletUnhealthy, "the kubelet answers %d: %s", code, said)
}
