package runtime

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/unixgrpc"
)

// CRI asks the machine's container runtime, over the socket that the kubelet uses too. The socket is looked for at every
// call, so that a new runtime is found. Its methods may be called from any goroutine.
type CRI struct {
	host        *hostfs.Root
	connections *unixgrpc.Connections
	endpoint    string
	// answered is the socket of the last call that succeeded. A runtime that was there is expected from then on: some take
	// their socket with them when they end.
	answered atomic.Pointer[string]
}

// NewCRI asks the runtime at an endpoint such as unix:///run/containerd/containerd.sock; empty: the one that is found,
// as locate says. It does not connect yet, and closes none of the connections.
func NewCRI(host *hostfs.Root, connections *unixgrpc.Connections, endpoint string) *CRI {
	return &CRI{host: host, connections: connections, endpoint: endpoint}
}

// ErrNoRuntime says that the machine has no container runtime that speaks CRI, and that nobody asks for one.
var ErrNoRuntime = errors.New("no container runtime is configured or found")

// Reachable is nil when the runtime answers the call Status, whatever it answers, and ErrNoRuntime when the machine has
// none. Any other error says, without numbers that change, why it does not answer. It returns when ctx ends.
func (c *CRI) Reachable(ctx context.Context) error {
	_, err := c.status(ctx)
	return err
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
	connecting, err := c.connections.Call(c.host.Path(path), func(conn grpc.ClientConnInterface) error {
		return do(runtimev1.NewRuntimeServiceClient(conn))
	})
	if err == nil {
		c.answered.Store(&at.socket)
		return nil
	}
	f := &failure{socket: at.socket, connecting: connecting, answer: status.Convert(err), canceled: errors.Is(ctx.Err(), context.Canceled)}
	if f.answer.Code() == codes.Unimplemented && !at.expected {
		return ErrNoRuntime // containerd as Docker installs it, for one
	}
	return f
}

func (c *CRI) locate() (endpoint, error) {
	at, err := locate(c.host, c.endpoint)
	answered := c.answered.Load()
	if answered == nil {
		return at, err
	}
	if err == nil && at.socket == "" {
		at.socket = *answered
	}
	at.expected = true
	return at, err
}
