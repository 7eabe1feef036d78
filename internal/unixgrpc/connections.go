// Package unixgrpc keeps gRPC connections to unix sockets, one for each socket, for all who have something to ask there.
// It knows nothing of what is asked.
package unixgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// maxAnswer bounds what may be answered, in bytes.
	maxAnswer = 256 << 10
	// idleAfter is how long nobody must have asked for a connection to be closed. Who asks does so every minute or so.
	idleAfter = 10 * time.Minute
)

// Connections are kept from call to call, which takes less memory than one for each. After a call that failed there is
// none: gRPC would go on connecting in the background, and hold back the next call for as long as it waits. The methods
// may be called from any goroutine.
type Connections struct {
	mu   sync.Mutex
	kept map[string]*link // by socket
}

// New keeps none yet.
func New() *Connections { return &Connections{kept: map[string]*link{}} }

// Call has do ask over the connection to a socket, a path of this process's file system. It is made when do first uses
// it. err is what do returns; where that is for want of a connection, connecting says why, as gRPC does in words alone.
func (c *Connections) Call(socket string, do func(grpc.ClientConnInterface) error) (connecting, err error) {
	l := c.take(socket)
	err = do(l)
	if err != nil {
		connecting = l.fault()
	}
	c.give(l, err != nil)
	return connecting, err
}

// Close closes every connection; one that is in use, when it no longer is. More can be made afterwards.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.kept {
		c.drop(l)
	}
}

func (c *Connections) take(socket string) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.kept[socket]
	if l == nil {
		l = newLink(socket)
		c.kept[socket] = l
	}
	l.users++
	return l
}

func (c *Connections) give(l *link, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users--
	if broken || c.kept[l.socket] != l {
		c.drop(l)
	}
}

// drop hands a link out to nobody any more. The last of its users closes it: the others may be answered yet.
func (c *Connections) drop(l *link) {
	if c.kept[l.socket] == l {
		delete(c.kept, l.socket)
	}
	if l.users == 0 {
		_ = l.Close() // whatever became of it
	}
}

// link is a connection that remembers why connecting failed.
type link struct {
	*grpc.ClientConn
	socket string
	failed atomic.Pointer[error]
	users  int // under the mutex of Connections
}

func newLink(socket string) *link {
	l := &link{socket: socket}
	conn, err := grpc.NewClient("passthrough:///socket",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's permissions are what protects it
		grpc.WithContextDialer(l.dial),
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(),
		grpc.WithIdleTimeout(idleAfter),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		panic(fmt.Sprintf("unixgrpc: options that gRPC refuses: %v", err)) // they are constants
	}
	l.ClientConn = conn
	return l
}

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
