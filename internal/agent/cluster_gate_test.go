package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// turnstile stands between one agent and the API server and spoils what it is told to.
type turnstile struct {
	mu      sync.Mutex
	spoil   func(*http.Request) *fault
	spoiled int
}

// fault is what becomes of a request.
type fault struct {
	// status is answered in the API server's place; 0: the API server answers.
	status     int
	retryAfter int // seconds
	// delay is before the answer.
	delay time.Duration
}

// set has the turnstile ask spoil of every request; nil: everything passes.
func (g *turnstile) set(spoil func(*http.Request) *fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spoil, g.spoiled = spoil, 0
}

func (g *turnstile) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spoiled
}

func (g *turnstile) fault(request *http.Request) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spoil == nil {
		return nil
	}
	f := g.spoil(request)
	if f != nil {
		g.spoiled++
	}
	return f
}

// gated is a kubeconfig that leads through a turnstile.
func (r *rig) gated(t *testing.T) (*turnstile, string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.agentKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters["fettle"].Server)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(r.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.FlushInterval = -1 // watches
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	g := &turnstile{}
	closed := make(chan struct{})
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		f := g.fault(request)
		if f == nil {
			proxy.ServeHTTP(w, request)
			return
		}
		select {
		case <-closed:
			return
		case <-request.Context().Done():
			return
		case <-time.After(f.delay):
		}
		if f.status == 0 {
			proxy.ServeHTTP(w, request)
			return
		}
		answer(w, *f)
	}))
	t.Cleanup(func() { close(closed); front.CloseClientConnections(); front.Close() })
	config.Clusters["fettle"].Server = front.URL
	config.Clusters["fettle"].CertificateAuthority = ""
	config.Clusters["fettle"].CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g, kubeconfig
}

// answer is what the API server says with a status: what it limits it answers in plain words.
func answer(w http.ResponseWriter, f fault) {
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
		http.Error(w, "Too many requests, please try again later.", f.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonForbidden, Code: int32(f.status), Message: "spoiled by the test",
	})
}

func aboutLeases(request *http.Request) bool { return strings.Contains(request.URL.Path, "/leases") }

func aboutStatus(request *http.Request) bool { return strings.HasSuffix(request.URL.Path, "/status") }

// all spoils every request that is like that in the same way.
func all(like func(*http.Request) bool, f fault) func(*http.Request) *fault {
	return func(request *http.Request) *fault {
		if like(request) {
			return &f
		}
		return nil
	}
}
