package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
	"github.com/fettle-dev/fettle/test/scratch"
)

// host is a folder that stands for a machine's root. Its path is short, since unix sockets lie in it.
type host struct {
	t    *testing.T
	dir  string
	root *hostfs.Root
	// sockets are the connections that its probes share.
	sockets *unixgrpc.Connections
}

func newHost(t *testing.T) host {
	t.Helper()
	folder, err := scratch.New("runtime")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := folder.Remove(); err != nil {
			t.Error(err)
		}
	})
	root, err := hostfs.Open(folder.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	sockets := unixgrpc.New()
	t.Cleanup(sockets.Close)
	return host{t: t, dir: folder.Path(), root: root, sockets: sockets}
}

// path makes the folders above a path of the machine and gives it as this process knows it.
func (h host) path(p string) string {
	h.t.Helper()
	full := filepath.Join(h.dir, p)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	return full
}

func (h host) write(p, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(p), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) listen(p string) net.Listener {
	h.t.Helper()
	l, err := net.Listen("unix", h.path(p))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { l.Close() })
	return l
}

// build makes a probe of a kind on this machine, with options as set.
func build[Options any](h host, kind probes.Kind, set func(*Options)) probes.Probe {
	h.t.Helper()
	options := kind.NewOptions()
	if set != nil {
		set(options.(*Options))
	}
	return kind.Build(probes.Env{Host: h.root, Sockets: h.sockets, Getenv: os.Getenv}, options)
}

// patience is the timeout of a look that is to come to its end.
const patience = time.Minute

func look(t *testing.T, p probes.Probe, timeout time.Duration) health.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Run(ctx)
}

func expect(t *testing.T, got health.Result, verdict health.Verdict, reason, message string) {
	t.Helper()
	if want := (health.Result{Verdict: verdict, Reason: reason, Message: message}); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// answers is a runtime that answers with what a real one did.
type answers struct {
	runtimev1.UnimplementedRuntimeServiceServer
	version *runtimev1.VersionResponse
	status  *runtimev1.StatusResponse
	err     error         // of Status
	hangs   chan struct{} // Status waits for it, if there is one
}

func (a *answers) Version(context.Context, *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return a.version, nil
}

func (a *answers) Status(ctx context.Context, _ *runtimev1.StatusRequest) (*runtimev1.StatusResponse, error) {
	if a.hangs != nil {
		select {
		case <-a.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.status, a.err
}

// fixture reads what a real runtime answered.
func fixture(t *testing.T, name string) *answers {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var parts struct{ Version, Status json.RawMessage }
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parts); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	a := &answers{version: &runtimev1.VersionResponse{}, status: &runtimev1.StatusResponse{}}
	if err := protojson.Unmarshal(parts.Version, a.version); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := protojson.Unmarshal(parts.Status, a.status); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return a
}

// serve serves CRI on a socket of the machine until stop is called, or the test ends. A nil runtime serves gRPC without
// CRI.
func (h host) serve(socket string, runtime runtimev1.RuntimeServiceServer) (stop func()) {
	h.t.Helper()
	server := grpc.NewServer()
	if runtime != nil {
		runtimev1.RegisterRuntimeServiceServer(server, runtime)
	}
	l := h.listen(socket)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	stop = func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // it may not have begun to serve
			h.t.Error(err)
		}
		ended <- nil
	}
	h.t.Cleanup(stop)
	return stop
}
