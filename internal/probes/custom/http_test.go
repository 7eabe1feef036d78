package custom_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/custom"
	"github.com/fettle-dev/fettle/test/await"
)

func lookWithin(t *testing.T, p probes.Probe, within time.Duration) health.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return p.Run(ctx)
}

func asking(t *testing.T, url string, change func(*custom.HTTPOptions)) probes.Probe {
	t.Helper()
	return build(t, custom.HTTP, "/", func(o *custom.HTTPOptions) {
		o.URL = url
		if change != nil {
			change(o)
		}
	})
}

// serve answers by path.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	endless := strings.Repeat("x", 1<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, "status: ok\n")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/broken":
			http.Error(w, "oh", http.StatusServiceUnavailable)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, endless); err != nil {
					return
				}
			}
		case "/slow":
			fmt.Fprint(w, "begun")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/silent":
			<-r.Context().Done()
		case "/headers":
			for i := range 200 {
				w.Header().Add(fmt.Sprintf("X-%d", i), endless)
			}
		case "/who":
			fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.Header.Get("Token"))
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

func TestAnswers(t *testing.T) {
	s := serve(t)
	for _, tc := range []struct {
		name, path string
		change     func(*custom.HTTPOptions)
		reason     string
		message    string // behind the URL
	}{
		{name: "well", path: "/ok?token=secret", reason: "OK", message: " answers as it should"},
		{name: "any status of the two hundreds is", path: "/empty", reason: "OK", message: " answers as it should"},
		{name: "another status", path: "/broken?token=secret", reason: custom.HTTPStatus, message: " answers with status 503"},
		{name: "another status that is expected", path: "/broken", change: func(o *custom.HTTPOptions) { o.Status = []custom.StatusRange{"200", "500-599"} }, reason: "OK", message: " answers as it should"},
		{name: "the only status that is not", path: "/ok", change: func(o *custom.HTTPOptions) { o.Status = []custom.StatusRange{"204"} }, reason: custom.HTTPStatus, message: " answers with status 200"},
		{name: "the body", path: "/ok", change: func(o *custom.HTTPOptions) { o.Body = "(?m)^status: ok$" }, reason: "OK", message: " answers as it should"},
		{name: "another body", path: "/ok", change: func(o *custom.HTTPOptions) { o.Body = "degraded" }, reason: custom.HTTPBody, message: ` does not match "degraded"`},
		{name: "a body without end", path: "/endless", change: func(o *custom.HTTPOptions) { o.Body = "end" }, reason: custom.HTTPBody, message: ` does not match "end"`},
		{name: "a body without end that nobody reads", path: "/endless", reason: "OK", message: " answers as it should"},
		{name: "headers without measure", path: "/headers", reason: custom.HTTPUnreachable, message: "server response headers exceeded 65536 bytes; aborted"},
		{name: "a redirect is an answer", path: "/moved", reason: custom.HTTPStatus, message: " answers with status 302"},
		{name: "a redirect that is followed", path: "/moved", change: func(o *custom.HTTPOptions) { o.FollowRedirects = true }, reason: "OK", message: " answers as it should"},
		{name: "redirects without end", path: "/loop", change: func(o *custom.HTTPOptions) { o.FollowRedirects = true }, reason: custom.HTTPUnreachable, message: ": redirects without end"},
		{name: "a method, a host and a header", path: "/who", change: func(o *custom.HTTPOptions) {
			o.Headers, o.Body = []string{"Host: example.com", "Token: s3cret"}, "^GET example.com s3cret$"
		}, reason: "OK", message: " answers as it should"},
		{name: "only headers", path: "/ok", change: func(o *custom.HTTPOptions) { o.Method = "HEAD" }, reason: "OK", message: " answers as it should"},
		{name: "a reason of one's own", path: "/broken", change: func(o *custom.HTTPOptions) { o.Reason = "GatewayDown" }, reason: "GatewayDown", message: " answers with status 503"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := look(t, asking(t, s.URL+tc.path, tc.change))
			path, _, _ := strings.Cut(tc.path, "?")
			if got.Reason != tc.reason || !strings.Contains(got.Message, s.URL+path) || !strings.HasSuffix(got.Message, tc.message) || (got.Verdict == health.OK) != (tc.reason == "OK") {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, path := range []string{"/silent", "/slow"} {
		p := asking(t, s.URL+path, func(o *custom.HTTPOptions) { o.Body = "end" })
		if got := lookWithin(t, p, 200*time.Millisecond); got.Reason != custom.HTTPUnreachable || !strings.HasSuffix(got.Message, ": no answer in time") {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestHeadersAreForTheFirstHostOnly(t *testing.T) {
	var seen atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Header.Get("Token")) }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer first.Close()
	p := asking(t, first.URL, func(o *custom.HTTPOptions) { o.FollowRedirects, o.Headers = true, []string{"Token: s3cret"} })
	if got := look(t, p); got.Verdict != health.OK || seen.Load() != "" {
		t.Errorf("%+v, the other host saw %q", got, seen.Load())
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	tcp := func(address string, reason custom.Reason) health.Result {
		return look(t, build(t, custom.TCP, "/", func(o *custom.TCPOptions) { o.Address, o.Reason = address, reason }))
	}
	if got, want := tcp(address, ""), (health.Result{Verdict: health.OK, Reason: "OK", Message: address + " takes connections"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.Close()
	if got, want := tcp(address, ""), (health.Result{Verdict: health.Fatal, Reason: custom.TCPUnreachable, Message: "connect to " + address + ": connection refused"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := tcp(address, "PortalGone"); got.Reason != "PortalGone" || got.Verdict != health.Fatal {
		t.Errorf("%+v", got)
	}
	if got, want := look(t, asking(t, "http://"+address+"/x", nil)), (health.Result{Verdict: health.Fatal, Reason: custom.HTTPUnreachable, Message: "http://" + address + "/x: connection refused"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestServerOnASocket(t *testing.T) {
	root := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(root, "real.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })}}
	s.Start()
	defer s.Close()
	if err := os.Symlink("/real.sock", filepath.Join(root, "sock")); err != nil {
		t.Fatal(err)
	}
	at := func(socket string) health.Result {
		return look(t, build(t, custom.HTTP, root, func(o *custom.HTTPOptions) { o.URL, o.UnixSocket, o.Body = "http://daemon/x", socket, "^daemon$" }))
	}
	if got := at("/sock"); got.Verdict != health.OK {
		t.Errorf("%+v", got)
	}
	if got := at("/none"); got.Reason != custom.HTTPUnreachable || got.Message != "http://daemon/x: no such file or directory" {
		t.Errorf("%+v", got)
	}
}

// certified makes a certificate that signs itself, and the PEM to trust it by.
func certified(t *testing.T, notAfter time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"server.test"},
		NotBefore: notAfter.Add(-48 * time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCertificates(t *testing.T) {
	root := t.TempDir()
	start := func(name string, notAfter time.Time) string {
		certificate, trusted := certified(t, notAfter)
		if err := os.WriteFile(filepath.Join(root, name), trusted, 0o600); err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	}
	good, expired := start("good.pem", time.Now().Add(24*time.Hour)), start("expired.pem", time.Now().Add(-time.Hour))
	if err := os.WriteFile(filepath.Join(root, "nonsense.pem"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, url  string
		change     func(*custom.HTTPOptions)
		reason, in string
	}{
		{name: "trusted by name", url: good, change: func(o *custom.HTTPOptions) { o.CAFile, o.ServerName = "/good.pem", "server.test" }, reason: "OK"},
		{name: "of another name", url: good, change: func(o *custom.HTTPOptions) { o.CAFile = "/good.pem" }, reason: custom.HTTPCertificate, in: "cannot validate certificate for 127.0.0.1"},
		{name: "of nobody we know", url: good, change: func(o *custom.HTTPOptions) { o.CAFile, o.ServerName = "/expired.pem", "server.test" }, reason: custom.HTTPCertificate, in: "unknown authority"},
		{name: "of nobody the system knows", url: good, change: func(o *custom.HTTPOptions) { o.ServerName = "server.test" }, reason: custom.HTTPCertificate, in: "unknown authority"},
		{name: "expired", url: expired, change: func(o *custom.HTTPOptions) { o.CAFile, o.ServerName = "/expired.pem", "server.test" }, reason: custom.HTTPCertificate, in: "the certificate has expired or is not yet valid"},
		{name: "expired, whatever", url: expired, change: func(o *custom.HTTPOptions) { o.InsecureSkipVerify = true }, reason: "OK"},
		{name: "no file to trust", url: good, change: func(o *custom.HTTPOptions) { o.CAFile = "/none.pem" }, reason: custom.HTTPNotAsked, in: "open /none.pem: no such file or directory"},
		{name: "nonsense to trust", url: good, change: func(o *custom.HTTPOptions) { o.CAFile = "/nonsense.pem" }, reason: custom.HTTPNotAsked, in: "/nonsense.pem holds no certificate"},
		{name: "no TLS where it is spoken", url: strings.Replace(good, "https", "http", 1), change: func(*custom.HTTPOptions) {}, reason: custom.HTTPStatus, in: "400"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := look(t, build(t, custom.HTTP, root, func(o *custom.HTTPOptions) {
				o.URL = tc.url
				tc.change(o)
			}))
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.in) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Servers of all sorts, again and again: no connection, goroutine or memory stays.
func TestLooksLeaveNothingBehind(t *testing.T) {
	s := serve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	follow := func(o *custom.HTTPOptions) { o.FollowRedirects, o.Body = true, "end" }
	all := []probes.Probe{
		asking(t, s.URL+"/ok", follow), asking(t, s.URL+"/endless", follow), asking(t, s.URL+"/endless", nil), asking(t, s.URL+"/loop", follow),
		asking(t, "http://"+l.Addr().String(), nil),
		build(t, custom.TCP, "/", func(o *custom.TCPOptions) { o.Address = s.Listener.Addr().String() }),
	}
	round := func() {
		for _, p := range all {
			look(t, p)
		}
	}
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round()
	await.That(t, "the server has let go", func() bool { return runtime.NumGoroutine() < 20 })
	goroutines, before := runtime.NumGoroutine(), files()
	for range 100 {
		round()
	}
	await.That(t, fmt.Sprintf("goroutines are %d and files %d as before", goroutines, before), func() bool {
		return runtime.NumGoroutine() <= goroutines && files() <= before
	})
}
