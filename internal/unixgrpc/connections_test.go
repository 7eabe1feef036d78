package unixgrpc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/fettle-dev/fettle/internal/unixgrpc"
	"github.com/fettle-dev/fettle/test/await"
)

// server answers the questions of gRPC's own health service, but the question "slow" only when it is told to.
type server struct {
	healthv1.HealthServer
	socket   string
	accepted atomic.Int32
	open     atomic.Int32
	asked    chan struct{} // for each "slow"
	answer   chan struct{}
}

func (s *server) Check(ctx context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if r.GetService() == "slow" {
		s.asked <- struct{}{}
		select {
		case <-s.answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.GetService() == "broken" {
		return nil, status.Error(codes.Internal, "broken")
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

// counted counts the connections of a listener.
type counted struct {
	net.Listener
	s *server
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.accepted.Add(1)
	l.s.open.Add(1)
	return &closing{Conn: c, s: l.s}, nil
}

type closing struct {
	net.Conn
	s      *server
	closed atomic.Bool
}

func (c *closing) Close() error {
	if !c.closed.Swap(true) {
		c.s.open.Add(-1)
	}
	return c.Conn.Close()
}

func serve(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "g") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{HealthServer: health.NewServer(), socket: filepath.Join(dir, "s"), asked: make(chan struct{}), answer: make(chan struct{})}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	healthv1.RegisterHealthServer(g, s)
	go func() { _ = g.Serve(counted{l, s}) }()
	t.Cleanup(g.Stop)
	return s
}

func ask(ctx context.Context, c *unixgrpc.Connections, socket, question string) (connecting, err error) {
	return c.Call(socket, func(conn grpc.ClientConnInterface) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: question})
		return err
	})
}

func TestAllShareOneConnection(t *testing.T) {
	s, c := serve(t), unixgrpc.New()
	for range 3 {
		if connecting, err := ask(t.Context(), c, s.socket, ""); err != nil || connecting != nil {
			t.Fatal(connecting, err)
		}
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	c.Close()
	await.That(t, "it is closed", func() bool { return s.open.Load() == 0 })
	if _, err := ask(t.Context(), c, s.socket, ""); err != nil || s.accepted.Load() != 2 {
		t.Errorf("after Close: %v, %d connections", err, s.accepted.Load())
	}
	c.Close()
}

// Somebody's call fails, or ends early, while another waits for its answer on the same connection.
func TestAFailedCallCutsNoOtherShort(t *testing.T) {
	s, c := serve(t), unixgrpc.New()
	defer c.Close()
	ended := make(chan error)
	go func() {
		_, err := ask(t.Context(), c, s.socket, "slow")
		ended <- err
	}()
	<-s.asked
	if _, err := ask(t.Context(), c, s.socket, "broken"); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(over, c, s.socket, ""); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if _, err := ask(t.Context(), c, s.socket, ""); err != nil || s.accepted.Load() < 2 {
		t.Errorf("%v, over %d connections; the one that failed is not for others", err, s.accepted.Load())
	}
	s.answer <- struct{}{}
	if err := <-ended; err != nil {
		t.Errorf("the call that waited: %v", err)
	}
	await.That(t, "what failed is closed when its last user is done", func() bool { return s.open.Load() == 1 })
}

func TestWhyConnectingFailed(t *testing.T) {
	c := unixgrpc.New()
	defer c.Close()
	socket := filepath.Join(t.TempDir(), "none")
	connecting, err := ask(t.Context(), c, socket, "")
	if !errors.Is(connecting, syscall.ENOENT) || status.Code(err) != codes.Unavailable {
		t.Errorf("%v, %v", connecting, err)
	}
}
