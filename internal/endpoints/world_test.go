package endpoints

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/test/await"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// told is a Source that says what a test has it say.
type told struct {
	mu         sync.Mutex
	stalled    string
	config     Configuration
	cluster    *Cluster
	credential *Credential
	counters   Counters
}

func (t *told) change(how func(*told)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how(t)
}

func tell[T any](t *told, what func(*told) T) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	return what(t)
}

func (t *told) Stalled() string { return tell(t, func(t *told) string { return t.stalled }) }
func (t *told) Configuration() Configuration {
	return tell(t, func(t *told) Configuration { return t.config })
}
func (t *told) Cluster() *Cluster { return tell(t, func(t *told) *Cluster { return t.cluster }) }
func (t *told) Credential() *Credential {
	return tell(t, func(t *told) *Credential { return t.credential })
}
func (t *told) Counters() Counters { return tell(t, func(t *told) Counters { return t.counters }) }

// well is an agent in a cluster about which everything is known.
func well() (Agent, *Board, *told) {
	b := NewBoard()
	b.Configured([]health.Check{
		{Name: "cni-config", Condition: "fettle.dev/NetworkReady"},
		{Name: "root-filesystem", Condition: "fettle.dev/StorageReady"},
	})
	b.Looked("cni-config", health.Result{Verdict: health.Fatal}, noon.Add(time.Second), 3*time.Millisecond)
	b.Looked("root-filesystem", health.Result{Verdict: health.OK}, noon, 250*time.Millisecond)
	b.Say(brokenNetwork())
	agent := Agent{Version: "v1.2.3", ID: "gpu-17_a", Node: "gpu-17", Mode: "Service", PID: 42, StartedAt: noon.Add(-time.Hour), BootID: "b"}
	return agent, b, &told{
		config: Configuration{Path: "/etc/fettle/nodeagent.yaml", Hash: "c0ffee", Generation: 2, LoadedAt: noon.Add(-time.Minute)},
		cluster: &Cluster{
			Joined: true, Server: "https://10.0.0.1:6443", Origin: "/etc/fettle/kubeconfig",
			Lease:      Lease{Held: true, State: "Holding", RenewedAt: noon.Add(3 * time.Second)},
			Publishing: Publishing{Current: true, Detail: "published"}, LastApplied: noon.Add(2 * time.Second),
		},
		credential: &Credential{ExpiresAt: noon.Add(24 * time.Hour), Renews: true, RenewAt: noon.Add(19 * time.Hour)},
		counters: Counters{
			LeaseRenewals: 7, LeaseFailures: 1, EventsSent: 2, EventsDropped: 3,
			Calls: []Calls{{Purpose: "report", Answered: 4, Refused: 5}},
		},
	}
}

func brokenNetwork() health.Report {
	return health.Report{
		Decided: true,
		Conditions: []health.Condition{
			{Type: "fettle.dev/NetworkReady", Status: health.StatusFalse, Reason: "CNIConfigMissing", Message: "no file"},
			{Type: "fettle.dev/StorageReady", Status: health.StatusTrue, Reason: "OK"},
		},
		Checks: []health.CheckState{
			{Name: "cni-config", Result: health.Result{Verdict: health.Fatal, Reason: "CNIConfigMissing", Message: "no file"}, Since: noon.Add(time.Second)},
			{Name: "root-filesystem", Result: health.Result{Verdict: health.OK, Reason: "OK"}, Since: noon, DryRun: true},
		},
		Counts:  health.Counts{OK: 1, Fatal: 1},
		Summary: health.Summary{Verdict: health.Fatal, Reason: "CNIConfigMissing", Since: noon.Add(time.Second)},
	}
}

// started runs a server for the test, and waits for its end.
func started(t *testing.T, o Options) *Server {
	t.Helper()
	agent, board, source := well()
	if o.Source == nil {
		o.Source = source
	}
	if o.Board == nil {
		o.Board = board
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Agent = agent
	s := New(o)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { stop(); run.Wait() })
	return s
}

// socketPath is short enough for a socket, whatever the test is called.
func socketPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if len(path) > 90 {
		t.Fatalf("%s is too long", path)
	}
	return path
}

func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// ask gives status and body of an answer, and waits until there is one.
func ask(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	var (
		code int
		body string
	)
	await.That(t, url+" is answered", func() bool {
		response, err := client.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		code, body = response.StatusCode, string(content)
		return err == nil
	})
	return code, body
}

// tmpfs mounts a file system of that many bytes for the test.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
	})
	return dir
}

// heard is a log that remembers.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) count(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.text.String(), what)
}

func (h *heard) log() *slog.Logger { return slog.New(slog.NewTextHandler(h, nil)) }
