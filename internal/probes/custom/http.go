package custom

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of http.
const (
	HTTPUnreachable = "HTTPUnreachable"
	HTTPCertificate = "HTTPCertificateWrong"
	HTTPStatus      = "HTTPStatusWrong"
	HTTPBody        = "HTTPBodyWrong"
	HTTPNotAsked    = "HTTPNotAsked"
)

// httpReasons are API.
var httpReasons = reasons.Table{
	{Name: HTTPUnreachable, Severity: reasons.Fatal, Says: "no answer came", Do: "see whether the server runs, and whether the way there is open from this machine"},
	{Name: HTTPCertificate, Severity: reasons.Fatal, Says: "the server's certificate is not to be trusted", Do: "see the message; renew the certificate, or correct caFile and serverName"},
	{Name: HTTPStatus, Severity: reasons.Fatal, Says: "the answer has another status than expected", Do: "see what the server's log says"},
	{Name: HTTPBody, Severity: reasons.Fatal, Says: "the answer's body is not as expected", Do: "see what the server answers"},
	{Name: HTTPNotAsked, Severity: reasons.Unknown, Says: "the server could not be asked, for a reason of the machine's own", Do: "see the message; the file of certificates may be missing, or the machine be out of files or of local ports"},
}

// StatusRange is an HTTP status or a range of them, written 204 or 200-299.
type StatusRange string

// UnmarshalText takes a range within 100 to 599.
func (r *StatusRange) UnmarshalText(text []byte) error {
	from, to, err := StatusRange(text).bounds()
	if err != nil || from < 100 || to > 599 || from > to {
		return errors.New("is not a status or a range of them")
	}
	*r = StatusRange(text)
	return nil
}

// Allowed says what UnmarshalText takes.
func (StatusRange) Allowed() string {
	return "a status from 100 to 599 or a range of them, e.g. 204 or 200-299"
}

func (r StatusRange) bounds() (from, to int, err error) {
	first, last, ranged := strings.Cut(string(r), "-")
	if !ranged {
		last = first
	}
	from, err = strconv.Atoi(first)
	to, lastErr := strconv.Atoi(last)
	return from, to, errors.Join(err, lastErr)
}

// HTTPOptions configure an http check.
type HTTPOptions struct {
	URL                string        `key:"url" doc:"what to ask for, with http or https; a name is looked up as the machine does"`
	UnixSocket         string        `key:"unixSocket" doc:"the machine's path of a socket to connect to in place of the URL's host" is:"abspath"`
	Method             string        `key:"method" doc:"the request's method" oneof:"GET,HEAD"`
	Headers            []string      `key:"headers" doc:"\"Name: value\" entries to send" secret:"true"`
	Status             []StatusRange `key:"status" doc:"the statuses that are well; empty: 200-299"`
	Body               Pattern       `key:"body" doc:"a regular expression that must match within the body's first 64 KiB; empty: the body is not read"`
	FollowRedirects    bool          `key:"followRedirects" doc:"follow up to 10 redirects, else a redirect is an answer with its own status; headers are sent to the first host only"`
	CAFile             string        `key:"caFile" doc:"the machine's path of a PEM file with the certificates to trust; empty: those of the agent's system"`
	ServerName         string        `key:"serverName" doc:"the name that the certificate must be for; empty: the URL's host"`
	InsecureSkipVerify bool          `key:"insecureSkipVerify" doc:"take any certificate, also one of an attacker"`
	Reason             Reason        `key:"reason" doc:"a name of your own for whatever is wrong; empty: the kind's, which tell what it is"`
}

// Validate reports what cannot be asked for. It shows no header.
func (o HTTPOptions) Validate(fault func(what, allowed string, keys ...string)) {
	u, err := url.Parse(o.URL)
	const aURL = "an http or https URL, e.g. http://127.0.0.1:9090/healthz"
	switch {
	case o.URL == "":
		fault("is missing", aURL, "url")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		fault("is not a URL that can be asked for", aURL, "url")
	case u.User != nil:
		fault("has credentials in it", "a header such as Authorization, which is not shown", "url")
	case u.Scheme == "http" && (o.CAFile != "" || o.ServerName != "" || o.InsecureSkipVerify):
		fault("is not https, but certificates are spoken of", "https, or neither caFile, serverName nor insecureSkipVerify", "url", "caFile", "serverName", "insecureSkipVerify")
	}
	if o.InsecureSkipVerify && (o.CAFile != "" || o.ServerName != "") {
		fault("takes any certificate, so that caFile and serverName mean nothing", "false", "insecureSkipVerify", "caFile", "serverName")
	}
	for i, header := range o.Headers {
		name, value, found := strings.Cut(header, ":")
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(strings.TrimSpace(value)) {
			fault("is not a header", `"Name: value"`, fmt.Sprintf("headers[%d]", i))
		}
	}
	if o.Method == http.MethodHead && o.Body != "" {
		fault("is asked for, but an answer to HEAD has none", "method: GET", "body", "method")
	}
	o.Reason.validate(httpReasons, fault)
}

// OwnReasons declares the user's reason.
func (o HTTPOptions) OwnReasons() reasons.Table { return o.Reason.declared() }

// HTTP is the kind "http": does a server answer as it should?
//
// Each look makes a connection of its own, directly and never through a proxy, and keeps nothing. What is read is
// bounded: 64 KiB of the body if it is looked at, and as much of headers. Messages show neither headers nor the URL's
// query, which may be secret.
var HTTP = probes.Define(probes.Kind{
	Name:        "http",
	Condition:   health.AggregateType,
	Description: "Asks an HTTP server and looks at the status and the body of its answer.",
	Reasons:     httpReasons,
	Interval:    30 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
	Template:    true,
}, func() HTTPOptions { return HTTPOptions{Method: http.MethodGet} }, func(env probes.Env, o HTTPOptions) probes.Probe {
	return httpLook{host: env.Host, HTTPOptions: o}
})

type httpLook struct {
	host *hostfs.Root
	HTTPOptions
}

func (l httpLook) Run(ctx context.Context) health.Result {
	return l.Reason.instead(l.look(ctx), HTTPUnreachable, HTTPCertificate, HTTPStatus, HTTPBody)
}

func (l httpLook) look(ctx context.Context) health.Result {
	request, err := http.NewRequestWithContext(ctx, l.Method, l.URL, http.NoBody)
	if err != nil {
		return probes.Because(httpReasons, HTTPNotAsked, "the URL cannot be asked for")
	}
	where := request.URL.Scheme + "://" + request.URL.Host + request.URL.EscapedPath()
	for _, header := range l.Headers {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Add(name, strings.TrimSpace(value))
		if strings.EqualFold(name, "Host") {
			request.Host = strings.TrimSpace(value)
		}
	}
	trust, err := l.trust()
	if err != nil {
		return probes.Because(httpReasons, HTTPNotAsked, "%v", err)
	}
	transport := &http.Transport{
		DialContext:            l.dial,
		TLSClientConfig:        trust,
		DisableKeepAlives:      true,
		DisableCompression:     true, // what is read stays what was sent, and bounded
		MaxResponseHeaderBytes: maxContent,
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, CheckRedirect: l.redirect}).Do(request)
	if err != nil {
		return judgeFailure(where, err)
	}
	defer answer.Body.Close()
	return l.judge(where, answer)
}

// dial connects to the URL's host, or to the socket in its place.
func (l httpLook) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.UnixSocket != "" {
		resolved, err := l.host.Resolve(l.UnixSocket)
		if err != nil {
			return nil, err
		}
		network, address = "unix", l.host.Path(resolved)
	}
	return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, address)
}

// trust reads the certificates anew for each look: they may have been renewed.
func (l httpLook) trust() (*tls.Config, error) {
	c := &tls.Config{ServerName: l.ServerName, InsecureSkipVerify: l.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if l.CAFile == "" {
		return c, nil
	}
	content, err := l.host.ReadFile(l.CAFile)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s holds no certificate", l.CAFile)
	}
	return c, nil
}

var errRedirects = errors.New("redirects without end")

func (l httpLook) redirect(next *http.Request, before []*http.Request) error {
	switch {
	case !l.FollowRedirects:
		return http.ErrUseLastResponse
	case len(before) > 10:
		return errRedirects
	case next.URL.Host != before[0].URL.Host:
		next.Header = http.Header{} // what is secret is for the first host only
	}
	return nil
}

func judgeFailure(where string, err error) health.Result {
	var certificate *tls.CertificateVerificationError
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // without the URL
	}
	switch {
	case errors.As(err, &certificate):
		return probes.Because(httpReasons, HTTPCertificate, "%s: %v", where, certificateFault(certificate.Err))
	case ownLack(err):
		return probes.Because(httpReasons, HTTPNotAsked, "%s: %s", where, plain(err))
	default:
		return probes.Because(httpReasons, HTTPUnreachable, "%s: %s", where, plain(err))
	}
}

// certificateFault words what is wrong with a certificate without the time of the look.
func certificateFault(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "the certificate has expired or is not yet valid"
	}
	return err.Error()
}

// ownLack says whether it is this machine that could not ask.
func ownLack(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

func (l httpLook) judge(where string, answer *http.Response) health.Result {
	if !l.expects(answer.StatusCode) {
		return probes.Because(httpReasons, HTTPStatus, "%s answers with status %d", where, answer.StatusCode)
	}
	if l.Body == "" {
		return probes.OK("%s answers as it should", where)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxContent))
	// A body that never ends is judged by what came of it.
	switch matches := l.Body.compile().Match(body); {
	case matches:
		return probes.OK("%s answers as it should", where)
	case err != nil:
		return probes.Because(httpReasons, HTTPUnreachable, "%s: read the answer: %s", where, plain(err))
	default:
		return probes.Because(httpReasons, HTTPBody, "the answer of %s does not match %q", where, string(l.Body))
	}
}

func (l httpLook) expects(status int) bool {
	if len(l.Status) == 0 {
		return status >= 200 && status <= 299
	}
	for _, r := range l.Status {
		if from, to, err := r.bounds(); err == nil && status >= from && status <= to {
			return true
		}
	}
	return false
}
