package runtime_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/runtime"
)

// serveHealth serves HTTP on an address of the loopback interface, port 0 for any, and gives the address.
func serveHealth(t *testing.T, address string, handle http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle} //nolint:gosec // a test's
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return l.Addr().String()
}

func kubelet(h host, address string) probes.Probe {
	return build(h, runtime.Kubelet, func(o *runtime.KubeletOptions) { o.Address = address })
}

func TestWhatTheKubeletAnswers(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		body string
		want health.Result
	}{
		{name: "ok", code: 200, body: "ok", want: probes.OK("the kubelet says that it is healthy")},
		{
			name: "the check that failed is named", code: 500,
			body: "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n",
			want: health.Result{Verdict: health.Fatal, Reason: runtime.KubeletUnhealthy, Message: "the kubelet answers 500: [-]syncloop failed: reason withheld"},
		},
		{
			name: "an error in words", code: 500, body: "\n  internal server error: sync Loop took longer than expected\nmore\n",
			want: health.Result{Verdict: health.Fatal, Reason: runtime.KubeletUnhealthy, Message: "the kubelet answers 500: internal server error: sync Loop took longer than expected"},
		},
		{name: "nothing but a code", code: 503, want: health.Result{Verdict: health.Fatal, Reason: runtime.KubeletUnhealthy, Message: "the kubelet answers 503: service unavailable"}},
		{
			name: "a redirect is not followed", code: 302, body: "elsewhere",
			want: health.Result{Verdict: health.Fatal, Reason: runtime.KubeletUnhealthy, Message: "the kubelet answers 302: elsewhere"},
		},
		{
			name: "more than anybody reads", code: 500, body: strings.Repeat("x", 1<<20),
			want: health.Result{Verdict: health.Fatal, Reason: runtime.KubeletUnhealthy, Message: "the kubelet answers 500: " + strings.Repeat("x", 16<<10)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			address := serveHealth(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/healthz" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.code)
				fmt.Fprint(w, tc.body)
			})
			if got := look(t, kubelet(newHost(t), address), patience); got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestKubeletThatDoesNotAnswer(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	hangs := serveHealth(t, "127.0.0.1:0", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	})
	expect(t, look(t, kubelet(newHost(t), hangs), 300*time.Millisecond), health.Fatal, runtime.KubeletUnreachable, hangs+" does not answer within the check's timeout")

	stopped, err := net.Listen("tcp", "127.0.0.1:0") // a process that is stopped accepts no connection; the kernel does
	if err != nil {
		t.Fatal(err)
	}
	address := stopped.Addr().String()
	expect(t, look(t, kubelet(newHost(t), address), 300*time.Millisecond), health.Fatal, runtime.KubeletUnreachable, address+" does not answer within the check's timeout")
	stopped.Close()
	expect(t, look(t, kubelet(newHost(t), address), patience), health.Fatal, runtime.KubeletUnreachable, "no connection to "+address+": connection refused")

	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n")
			_, _ = c.Read(make([]byte, 1<<10))
			c.Close()
		}
	}()
	expect(t, look(t, kubelet(newHost(t), other.Addr().String()), patience), health.Fatal, runtime.KubeletUnreachable, "what listens on "+other.Addr().String()+" does not answer in HTTP")
}

func TestWhereTheKubeletIsAsked(t *testing.T) {
	healthy := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	v4, v6 := serveHealth(t, "127.0.0.1:0", healthy), serveHealth(t, "[::1]:0", healthy)
	_, port4, _ := net.SplitHostPort(v4)
	_, port6, _ := net.SplitHostPort(v6)
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string // reason
	}{
		{"no kubelet has run here", nil, health.ReasonNotApplicable},
		{"an address and a port of its own", map[string]string{"/var/lib/kubelet/config.yaml": "healthzBindAddress: \"::1\"\nhealthzPort: " + port6 + "\n"}, health.ReasonOK},
		{"every address of IPv4", map[string]string{"/var/lib/kubelet/config.yaml": "healthzBindAddress: 0.0.0.0\nhealthzPort: " + port4 + "\n"}, health.ReasonOK},
		{"every address", map[string]string{"/var/lib/kubelet/config.yaml": "healthzBindAddress: \"::\"\nhealthzPort: " + port6 + "\n"}, health.ReasonOK},
		{
			"flags win over the configuration",
			map[string]string{
				"/var/lib/kubelet/config.yaml":       "healthzBindAddress: \"::1\"\nhealthzPort: 1\n",
				"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--healthz-port=" + port4 + " --healthz-bind-address 127.0.0.1\"\n",
			},
			health.ReasonOK,
		},
		{"its health is not served", map[string]string{"/var/lib/kubelet/config.yaml": "healthzPort: 0\n"}, health.ReasonNotApplicable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			for file, text := range tc.files {
				h.write(file, text)
			}
			if got := look(t, kubelet(h, ""), patience); got.Reason != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}
