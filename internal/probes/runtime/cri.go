package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// CRI asks the machine's container runtime, over the socket that the kubelet uses too.
//
// One connection is kept from call to call, which takes less memory than one for each. After a call that failed there
// is none: gRPC would go on connecting in the background, and hold back the next call for as long as it waits. The
// socket is looked for at every call, so that a new runtime is found. Its methods may be called from any goroutine.
//
// A CRI that nobody holds any more closes its connection, as a file does: checks are made anew when the configuration
// changes, and nobody tells the old ones.
type CRI struct {
	host     *hostfs.Root
	endpoint string
	*kept
}

// kept is what a CRI keeps from call to call. It does not know the CRI, whose end would else never come.
type kept struct {
	mu   sync.Mutex
	link *link
	// answered is the socket of the last call that succeeded. A runtime that was there is expected from then on: some take
	// their socket with them when they end.
	answered string
}

// NewCRI asks the runtime at an endpoint such as unix:///run/containerd/containerd.sock; empty: the one that is found,
// as locate says. It does not connect yet.
func NewCRI(host *hostfs.Root, endpoint string) *CRI {
	c := &CRI{host: host, endpoint: endpoint, kept: &kept{}}
	runtime.AddCleanup(c, (*kept).close, c.kept)
	return c
}

// Close closes the connection, if there is one.
func (c *CRI) Close() { c.close() }

// ErrNoRuntime says that the machine has no container runtime that speaks CRI, and that nobody asks for one.
var ErrNoRuntime = errors.New("no container runtime is configured or found")

// Reachable is nil when the runtime answers the call Status, whatever it answers, and ErrNoRuntime when the machine has
// none. Any other error says, without numbers that change, why it does not answer. It returns when ctx ends.
func (c *CRI) Reachable(ctx context.Context) error {
	_, err := c.status(ctx)
	return err
}

func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link != nil {
		k.link.end()
		k.link = nil
	}
}

// failure is a call that did not get its answer.
type failure struct {
	// socket is the host path; empty: there is none.
	socket string
	// canceled : the caller gave up.
	canceled bool
	// connecting is what connecting failed with; nil when there was a connection.
	connecting error
	// answer is how gRPC puts it.
	answer *status.Status
}

func (f *failure) Error() string { return judgeFailure(f).Message }

// status asks for the runtime's conditions. Errors are ErrNoRuntime or a *failure.
func (c *CRI) status(ctx context.Context) (*runtimev1.RuntimeStatus, error) {
	var got *runtimev1.StatusResponse
	err := c.call(ctx, func(client runtimev1.RuntimeServiceClient) (err error) {
		got, err = client.Status(ctx, &runtimev1.StatusRequest{})
		return err
	})
	return got.GetStatus(), err
}

// version asks for the runtime's name and version. Errors are those of status.
func (c *CRI) version(ctx context.Context) (*runtimev1.VersionResponse, error) {
	var got *runtimev1.VersionResponse
	err := c.call(ctx, func(client runtimev1.RuntimeServiceClient) (err error) {
		got, err = client.Version(ctx, &runtimev1.VersionRequest{})
		return err
	})
	return got, err
}

func (c *CRI) call(ctx context.Context, do func(runtimev1.RuntimeServiceClient) error) error {
	at, err := c.locate()
	switch {
	case err != nil:
		return &failure{connecting: err}
	case at.socket == "" && !at.expected:
		return ErrNoRuntime
	case at.socket == "":
		return &failure{}
	}
	path, err := c.host.Resolve(at.socket)
	if err != nil {
		return &failure{socket: at.socket, connecting: err}
	}
	l := c.linked(c.host.Path(path))
	err = do(runtimev1.NewRuntimeServiceClient(l))
	if err == nil {
		c.remember(at.socket)
		return nil
	}
	f := &failure{socket: at.socket, connecting: l.fault(), answer: status.Convert(err), canceled: errors.Is(ctx.Err(), context.Canceled)}
	c.drop(l)
	if f.answer.Code() == codes.Unimplemented && !at.expected {
		return ErrNoRuntime // containerd as Docker installs it, for one
	}
	return f
}

func (c *CRI) locate() (endpoint, error) {
	at, err := locate(c.host, c.endpoint)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && at.socket == "" {
		at.socket = c.answered
	}
	at.expected = at.expected || c.answered != ""
	return at, err
}

func (k *kept) remember(socket string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answered = socket
}

// linked gives the connection to a socket. It connects when it is first used.
func (k *kept) linked(socket string) *link {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link != nil && k.link.socket == socket {
		return k.link
	}
	if k.link != nil {
		k.link.end()
	}
	k.link = newLink(socket)
	return k.link
}

func (k *kept) drop(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == l {
		k.link = nil
	}
	l.end()
}

// maxAnswer bounds what a runtime may answer, in bytes. A Status takes a few hundred.
const maxAnswer = 256 << 10

// link is a connection that remembers why connecting failed: gRPC says it in words alone.
type link struct {
	*grpc.ClientConn
	socket string
	failed atomic.Pointer[error]
}

func newLink(socket string) *link {
	l := &link{socket: socket}
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's permissions are what protects it
		grpc.WithContextDialer(l.dial),
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		panic(fmt.Sprintf("runtime: options that gRPC refuses: %v", err)) // they are constants
	}
	l.ClientConn = conn
	return l
}

// end closes it, whatever became of it.
func (l *link) end() { _ = l.Close() }

func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
	if err != nil {
		l.failed.Store(&err)
		return nil, err
	}
	l.failed.Store(nil)
	return conn, nil
}

// fault is what the last attempt to connect failed with, without the words around it; nil when there was none that did.
func (l *link) fault() error {
	failed := l.failed.Load()
	if failed == nil {
		return nil
	}
	var errno syscall.Errno
	if errors.As(*failed, &errno) {
		return errno
	}
	return *failed
}
