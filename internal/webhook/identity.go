package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/webhook/certs"
)

// identity is with what this replica shows itself to the API server.
type identity struct {
	cache     client.Reader
	secret    client.ObjectKey
	dnsName   string
	lifetimes certs.Lifetimes

	mu      sync.Mutex
	serving certs.Serving // guarded by mu
}

// present makes a server show it.
func (i *identity) present(config *tls.Config) {
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate(hello.Context()) }
}

// certificate is asked at every handshake. It reads the Secret from the cache; only a certificate that is due costs more.
func (i *identity) certificate(ctx context.Context) (*tls.Certificate, error) {
	secret := &corev1.Secret{}
	if err := i.cache.Get(ctx, i.secret, secret); err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", i.secret, err)
	}
	authorities, err := certs.Read(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", i.secret, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	serving, err := authorities.Serve(i.serving, i.dnsName, time.Now(), i.lifetimes)
	if err != nil {
		return nil, err
	}
	i.serving = serving
	return serving.TLS, nil
}
