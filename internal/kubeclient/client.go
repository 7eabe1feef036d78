package kubeclient

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// scheme has the types that are decoded; Nodes are read as far as the agent needs them, see Node.
var (
	scheme         = runtime.NewScheme()
	codecs         = serializer.NewCodecFactory(scheme)
	parameterCodec = runtime.NewParameterCodec(scheme)
)

func init() {
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(fettlev1alpha1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}

// Settings of one client.
type Settings struct {
	// UserAgent is sent with every request; the API server's audit log tells clients apart by it.
	UserAgent string
	// CallTimeout bounds every call but a watch, in wall time.
	CallTimeout time.Duration
	// CallsPerSecond and Burst bound what this client alone may send.
	CallsPerSecond float32
	Burst          int
	// Calls counts the calls; nil: they are not counted.
	Calls *Calls
}

// Client talks to one API server over connections of its own, so that no other client of the process can hold it up.
type Client struct {
	core, coordination, fettle rest.Interface

	dialer      *connrotation.Dialer
	closed      *atomic.Bool
	callTimeout time.Duration
}

// New makes a client. It opens no connection yet.
func New(config *rest.Config, s Settings) (*Client, error) {
	// client-go shares a transport between clients of equal TLS configuration unless each brings its own dialer.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: s.CallTimeout, KeepAlive: 15 * time.Second}).DialContext)
	own := rest.CopyConfig(config)
	closed := new(atomic.Bool)
	// The transport goes on dialling for a call that was given up, and keeps the connection.
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil && closed.Load() {
			_ = conn.Close() // nothing was sent
			return nil, net.ErrClosed
		}
		return conn, err
	}
	own.UserAgent = s.UserAgent
	own.QPS, own.Burst = s.CallsPerSecond, s.Burst
	own.NegotiatedSerializer = codecs.WithoutConversion()
	own.WarningHandler = rest.NoWarnings{}
	if s.Calls != nil {
		own.Wrap(s.Calls.over)
	}

	httpClient, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("set up connections to %s: %w", config.Host, err)
	}
	c := &Client{dialer: dialer, closed: closed, callTimeout: s.CallTimeout}
	for _, group := range []struct {
		target  *rest.Interface
		path    string
		version schema.GroupVersion
	}{
		{&c.core, "/api", schema.GroupVersion{Version: "v1"}},
		{&c.coordination, "/apis", coordinationv1.SchemeGroupVersion},
		{&c.fettle, "/apis", fettlev1alpha1.GroupVersion},
	} {
		g := rest.CopyConfig(own)
		g.APIPath, g.GroupVersion = group.path, &group.version
		client, err := rest.RESTClientForConfigAndClient(g, httpClient)
		if err != nil {
			return nil, fmt.Errorf("make client of %s for %s: %w", group.version, config.Host, err)
		}
		*group.target = client
	}
	return c, nil
}

// DropConnections closes every connection, so that the next call dials anew. It is the cure of a connection whose other
// end is gone without a word, which HTTP/2 would otherwise use until its own ping gives up, 45 s later.
func (c *Client) DropConnections() { c.dialer.CloseAll() }

// Close closes every connection for good, also one that is being made. Calls fail from then on.
func (c *Client) Close() {
	c.closed.Store(true)
	c.dialer.CloseAll()
}

func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.callTimeout)
}
