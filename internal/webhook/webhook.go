package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fettle-dev/fettle/internal/webhook/certs"
)

// Names that deploy/new-nodes/webhook.yaml has too.
const (
	// Configuration is the name of the MutatingWebhookConfiguration.
	Configuration = "new-nodes.fettle.dev"
	// Secret is the name of that with the authorities, in the controller's namespace.
	Secret = "fettle-controller-webhook"
	// Service is the name of that by which the API server finds the controller, in the same namespace.
	Service = "controller-webhook"
	// Path is where the webhook is served.
	Path = "/new-nodes"
)

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// Options of the webhook.
type Options struct {
	// BindAddress is host:port.
	BindAddress string
	// Namespace is that of the controller.
	Namespace string
	// Lifetimes of certificates.
	Lifetimes certs.Lifetimes
	Log       logr.Logger
}

// Webhook is served by every replica.
type Webhook struct{ identity *identity }

// Cached are the objects that the manager's cache has to hold for a webhook: each of one name only.
func Cached(namespace string) map[client.Object]cache.ByObject {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	}
	secret := named(Secret)
	secret.Namespaces = map[string]cache.Config{namespace: {}}
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: secret,
		&admissionregistrationv1.MutatingWebhookConfiguration{}: named(Configuration),
	}
}

// Add gives the parts of the webhook to a manager that runs.
func Add(ctx context.Context, mgr manager.Manager, o Options) (*Webhook, error) {
	host, port, err := split(o.BindAddress)
	if err != nil {
		return nil, err
	}
	secret := client.ObjectKey{Namespace: o.Namespace, Name: Secret}
	id := &identity{cache: mgr.GetCache(), secret: secret, dnsName: Service + "." + o.Namespace + ".svc", lifetimes: o.Lifetimes}
	keeps := newKeeper(mgr.GetClient(), secret, Configuration, o.Lifetimes, o.Log)
	for _, obj := range []client.Object{&corev1.Secret{}, &admissionregistrationv1.MutatingWebhookConfiguration{}} {
		informer, err := mgr.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { keeps.changed() }, UpdateFunc: func(any, any) { keeps.changed() }, DeleteFunc: func(any) { keeps.changed() },
		}); err != nil {
			return nil, err
		}
	}
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){id.present}})
	// A panic that is recovered becomes a denial; one that is not ends the connection, which the API server ignores.
	server.Register(Path, &admission.Webhook{Handler: &newNodes{cache: mgr.GetCache()}, RecoverPanic: new(false)})
	for _, part := range []manager.Runnable{keeps, server} {
		if err := mgr.Add(part); err != nil {
			return nil, err
		}
	}
	return &Webhook{identity: id}, nil
}

// Ready reports whether the API server can be answered.
func (w *Webhook) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := w.identity.certificate(ctx); err != nil {
		return fmt.Errorf("the webhook cannot be served: %w", err)
	}
	return nil
}

// split reads host:port.
func split(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("the webhook's address must be host:port, not %q", address)
	}
	return host, port, nil
}
