package watch

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/liveness"
)

const (
	// confirmTimeout bounds one live read of a lease.
	confirmTimeout = 5 * time.Second
	// confirmers bounds the live reads under way at once.
	confirmers = 8
)

// confirmation is the answer of a live read.
type confirmation struct {
	node, host string
	lease      *coordinationv1.Lease // nil when there is none
	err        error
}

// confirm reads the agent's lease live and passes the answer to the goroutine of Start.
func (w *Watch) confirm(ctx context.Context, a *agent) {
	a.confirming = true
	c := confirmation{node: a.node, host: a.host}
	go func() {
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-ctx.Done():
			return
		}
		c.lease, c.err = w.readLive(ctx, c.node)
		select {
		case w.confirms <- c:
		case <-ctx.Done():
		}
	}()
}

// readLive reads a lease past the informer; nil when there is none.
func (w *Watch) readLive(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := w.Live.Get(ctx, client.ObjectKey{Namespace: fettlev1alpha1.LeaseNamespace, Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// confirmed judges an agent by its lease as the API server has it. An informer that is behind therefore makes no living agent
// silent: it only costs a live read for each agent and grace period, until the canary finds out.
func (w *Watch) confirmed(c confirmation, now time.Time) {
	a := w.agent(c.node)
	a.confirming = false
	switch {
	case a.host != c.host: // another Host meanwhile, or none
		if a.host == "" {
			w.forget(a)
			return
		}
		w.look(a, now)
		return
	case c.err != nil:
		w.tally.failed.Add(1)
		if !errors.Is(c.err, context.Canceled) {
			w.Log.Error(c.err, "cannot confirm that an agent is silent; its time starts anew", "node", a.node)
		}
		a.history = liveness.Excuse(a.history, now)
		w.look(a, now)
		return
	}
	live := a.observation()
	if c.lease != nil {
		w.take(a, sighting{node: a.node, lease: c.lease})
		live.Progress = a.progress
	}
	a.history, a.verdict = liveness.Observe(a.history, live, now, w.limitsOf(a))
	if !a.verdict.State.Quiet() {
		w.tally.refuted.Add(1)
		w.look(a, now)
		return
	}
	w.tally.confirmed.Add(1)
	w.act(a, now)
}
