package controller

import (
	"context"

	"github.com/fettle-dev/fettle/internal/webhook"
	"github.com/fettle-dev/fettle/internal/webhook/certs"
)

// serveWebhook answers the API server about new nodes, where it is to be asked. Every replica does.
func (s *setup) serveWebhook(ctx context.Context) error {
	if s.o.WebhookBindAddress == "0" {
		return nil
	}
	w, err := webhook.Add(ctx, s.mgr, webhook.Options{
		BindAddress: s.o.WebhookBindAddress, Namespace: Namespace, Lifetimes: certs.DefaultLifetimes(), Log: s.o.Log.WithName("webhook"),
	})
	if err != nil {
		return err
	}
	s.webhook.Store(w)
	return nil
}
