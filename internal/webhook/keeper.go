package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/webhook/certs"
)

const (
	// retryPause is when what failed is tried again.
	retryPause = 5 * time.Second
	// lookPause is the most time between two looks though nothing is known to have changed.
	lookPause = time.Hour
)

// keeper keeps the authorities in the Secret, and the API server's trust in them. Only the leader does.
type keeper struct {
	client        client.Client
	secret        client.ObjectKey
	configuration string
	lifetimes     certs.Lifetimes
	log           logr.Logger

	wake chan struct{}
}

func newKeeper(c client.Client, secret client.ObjectKey, configuration string, lifetimes certs.Lifetimes, log logr.Logger) *keeper {
	return &keeper{client: c, secret: secret, configuration: configuration, lifetimes: lifetimes, log: log, wake: make(chan struct{}, 1)}
}

// changed says that the Secret or the configuration did. It never blocks.
func (k *keeper) changed() {
	select {
	case k.wake <- struct{}{}:
	default: // a look is due anyway
	}
}

// NeedLeaderElection makes only the leader write.
func (k *keeper) NeedLeaderElection() bool { return true }

// Start keeps until the context ends.
func (k *keeper) Start(ctx context.Context) error {
	for {
		pause := lookPause
		if until, err := k.keep(ctx, time.Now()); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				k.log.Error(err, "cannot keep the certificates of the webhook; will try again")
			}
			pause = retryPause
		} else {
			pause = min(pause, until)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-time.After(pause):
		}
	}
}

// keep renews what is due and says for how long that is enough.
func (k *keeper) keep(ctx context.Context, now time.Time) (time.Duration, error) {
	authorities, err := k.renew(ctx, now)
	if err != nil {
		return 0, err
	}
	if err := k.announce(ctx, authorities.Bundle()); err != nil {
		return 0, err
	}
	return authorities.RenewAt(k.lifetimes).Sub(now), nil
}

// renew writes the Secret when authorities are due. One that cannot be read is written anew.
func (k *keeper) renew(ctx context.Context, now time.Time) (certs.Authorities, error) {
	secret := &corev1.Secret{}
	err := k.client.Get(ctx, k.secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return certs.Authorities{}, fmt.Errorf("read Secret %s: %w", k.secret, err)
	}
	was, err := certs.Read(secret.Data)
	if err != nil {
		k.log.Error(err, "the certificates of the webhook are broken and are made anew", "secret", k.secret)
	}
	is, changed, err := was.Renew(now, k.lifetimes)
	if err != nil || !changed {
		return is, err
	}
	data, err := is.Data()
	if err != nil {
		return certs.Authorities{}, err
	}
	if missing {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.secret.Namespace, Name: k.secret.Name}, Data: data}
		err = k.client.Create(ctx, secret)
	} else {
		secret = secret.DeepCopy() // the cache's own
		secret.Data = data
		err = k.client.Update(ctx, secret) // with the resourceVersion that was read
	}
	if err != nil {
		return certs.Authorities{}, fmt.Errorf("write Secret %s: %w", k.secret, err)
	}
	k.log.Info("made an authority for the certificates of the webhook", "secret", k.secret)
	return is, nil
}

// announce makes the API server trust the bundle. Without a configuration there is nobody to tell.
func (k *keeper) announce(ctx context.Context, bundle []byte) error {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: k.configuration}, configuration); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read MutatingWebhookConfiguration %s: %w", k.configuration, err)
	}
	type webhook struct {
		Name         string            `json:"name"`
		ClientConfig map[string][]byte `json:"clientConfig"`
	}
	var stale []webhook
	for _, w := range configuration.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, bundle) {
			stale = append(stale, webhook{Name: w.Name, ClientConfig: map[string][]byte{"caBundle": bundle}})
		}
	}
	if len(stale) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"webhooks": stale})
	if err != nil {
		return err
	}
	if err := k.client.Patch(ctx, configuration.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return fmt.Errorf("write MutatingWebhookConfiguration %s: %w", k.configuration, err)
	}
	return nil
}
