package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// try makes one attempt at a beat: read what must be read, decide, write. It returns Holding, IdentityConflict or
// WaitingForNode, or an error.
func (h *Heart) try(ctx context.Context, now time.Time) (State, error) {
	found, err := h.findNode(ctx)
	if err != nil {
		return "", err
	}
	if !found {
		return WaitingForNode, nil
	}
	if h.unread {
		if err := h.readLease(ctx); err != nil {
			return "", err
		}
	}
	var action Action
	action, h.sighting = Decide(h.lease, h.self, h.sighting, now)
	switch action {
	case Yield:
		h.unread = true
		return IdentityConflict, nil
	case Create, TakeOver:
		h.rememberAttempt()
	}
	return Holding, h.write(ctx, action, now)
}

// findNode makes sure that the Node is known whose Lease this is.
func (h *Heart) findNode(ctx context.Context) (found bool, err error) {
	if h.owner.UID != "" {
		return true, nil
	}
	node, err := h.api.Node(ctx, h.o.Node)
	if apierrors.IsNotFound(err) {
		h.lease, h.unread = nil, true
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if h.knownUID != "" && h.knownUID != node.UID {
		h.why = "the node was created anew"
	}
	h.owner.UID, h.knownUID = node.UID, node.UID
	return true, nil
}

func (h *Heart) readLease(ctx context.Context) error {
	lease, err := h.api.Lease(ctx, h.o.Namespace, h.o.Node)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		lease = nil
	}
	before := h.lease
	h.lease, h.unread = lease, false
	if before != nil && (lease == nil || lease.UID != before.UID) {
		return h.vanished()
	}
	return nil
}

// write stores the beat. What it learns from a refusal about the Lease or the Node is read again by the next try.
func (h *Heart) write(ctx context.Context, action Action, now time.Time) error {
	next := renewed(h.lease, h.o.Namespace, h.o.Holder, h.owner, h.o.Interval, h.o.LeaseDuration, now)
	if action == Create {
		stored, err := h.api.CreateLease(ctx, next, kubeclient.ApplyOptions{})
		if err != nil {
			h.unread = true
			if apierrors.IsNotFound(err) {
				return errNoNamespace{namespace: h.o.Namespace, err: err}
			}
			return err
		}
		h.lease = stored
	} else {
		stored, err := h.api.UpdateLease(ctx, next)
		if apierrors.IsNotFound(err) {
			h.lease = nil
			return h.vanished()
		}
		if err != nil {
			// Also after a timeout: the write may have been stored.
			h.unread = true
			return err
		}
		if stored.UID != h.lease.UID {
			h.lease = stored
			return h.vanished()
		}
		h.lease = stored
	}
	h.rememberConfirmed()
	return nil
}

func (h *Heart) rememberAttempt() {
	if !slices.Contains(h.memory.predecessors(), h.o.Holder) {
		h.keep(h.memory.attempting(h.o.Holder))
	}
}

func (h *Heart) rememberConfirmed() {
	if h.memory.Confirmed != h.o.Holder {
		h.keep(memory{Node: h.o.Node, Confirmed: h.o.Holder})
	}
	h.self.Predecessors = nil // whoever carries one of these names from here on is not our past
}

func (h *Heart) keep(m memory) {
	if h.o.StateDir == "" {
		return
	}
	before := h.memory
	h.memory = m
	if err := remember(h.o.StateDir, m); err != nil && before.Confirmed != m.Confirmed {
		h.o.Log.Warn("the lease's holder is not remembered; after a restart it is taken over three beats late", "error", err)
	}
}

// vanished has the Node looked at: why the Lease went is not known; with its Node, perhaps. The API server may have made
// another when it was asked to update the one that it did not have.
func (h *Heart) vanished() error {
	h.owner.UID, h.why = "", errVanished.Error()
	return errVanished
}

// errVanished : the Lease that was known is gone, or another stands in its place.
var errVanished = errors.New("the lease vanished")

// errNoNamespace says what is missing when a Lease cannot even be created.
type errNoNamespace struct {
	namespace string
	err       error
}

func (e errNoNamespace) Error() string {
	return fmt.Sprintf("namespace %s does not exist; install Fettle's manifests in the cluster: %v", e.namespace, e.err)
}

func (e errNoNamespace) Unwrap() error { return e.err }
