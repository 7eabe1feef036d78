package nodewriter

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the field manager of the controller.
const FieldOwner = client.FieldOwner("fettle-controller")

const (
	// attempts bounds the writes of one change while others keep changing the same node.
	attempts = 5
	// firstPause is the mean wait before the first attempt after a failed test; it doubles.
	firstPause = 10 * time.Millisecond
)

// Writer writes nodes. It may be used concurrently, but for one node only by one caller at a time.
type Writer struct {
	client client.Client
	live   client.Reader

	inFlight atomic.Int64

	mu sync.Mutex
	// newest holds nodes as our last write or live read showed them, trimmed, by name, until a cache has caught up.
	// Guarded by mu.
	newest map[string]*corev1.Node
}

// New returns a writer that writes through c and reads live, past any cache, through live.
func New(c client.Client, live client.Reader) *Writer {
	return &Writer{client: c, live: live, newest: map[string]*corev1.Node{}}
}

// Latest returns the newer of a node as a cache has it and as our own last write or live read showed it.
func (w *Writer) Latest(cached *corev1.Node) *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.newest[cached.Name]
	if ours == nil {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, ours.ResourceVersion); err == nil && order < 0 {
		return ours
	}
	delete(w.newest, cached.Name)
	return cached
}

// Forget drops what is known of a node that is gone.
func (w *Writer) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.newest, name)
}

// Busy reports whether a write is under way, so that writes of lesser urgency can wait.
func (w *Writer) Busy() bool { return w.inFlight.Load() > 0 }

// Write brings a node to what decide wants and returns the node as it is then. decide is called again with the node as
// read live whenever somebody else changed what it relied on. A node that is gone is no error.
func (w *Writer) Write(ctx context.Context, node *corev1.Node, decide func(*corev1.Node) Change) (*corev1.Node, error) {
	var refused []byte
	for attempt := 1; ; attempt++ {
		change := decide(node)
		if change.Empty() {
			return node, nil
		}
		patch, err := buildPatch(node, change)
		if err != nil {
			return node, err
		}
		written, err := w.patch(ctx, node.Name, client.RawPatch(types.JSONPatchType, patch), false)
		switch {
		case err == nil:
			return written, nil
		case apierrors.IsNotFound(err):
			return node, nil
		case !outdated(err), attempt == attempts, bytes.Equal(patch, refused):
			// The same patch refused twice, the second time from a live read, is wrong rather than late.
			return node, fmt.Errorf("write node %s: %w", node.Name, err)
		}
		refused = patch
		if err := pause(ctx, attempt); err != nil {
			return node, fmt.Errorf("write node %s: %w", node.Name, err)
		}
		if node, err = w.Live(ctx, node.Name); err != nil {
			if apierrors.IsNotFound(err) {
				return node, nil
			}
			return node, fmt.Errorf("write node %s: %w", node.Name, err)
		}
	}
}

// SetUnknown sets those of the named conditions that the node has to Unknown. It fails when the node changed since it
// was read: whoever changed it may be the reporter of these conditions, alive again.
func (w *Writer) SetUnknown(ctx context.Context, node *corev1.Node, conditionTypes []string, reason, message string, now time.Time) (*corev1.Node, error) {
	patch, err := unknownPatch(node, conditionTypes, reason, message, now)
	if err != nil || patch == nil {
		return node, err
	}
	written, err := w.patch(ctx, node.Name, client.RawPatch(types.StrategicMergePatchType, patch), true)
	if err != nil {
		return node, fmt.Errorf("set conditions of node %s to Unknown: %w", node.Name, err)
	}
	return written, nil
}

// Live reads a node past the cache, trimmed as the cache's are. The node returned has its name even with an error.
func (w *Writer) Live(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := w.live.Get(ctx, client.ObjectKey{Name: name}, node)
	node.Name = name
	node = trimmed(node)
	if err == nil {
		w.remember(node)
	}
	return node, err
}

func (w *Writer) patch(ctx context.Context, name string, patch client.Patch, status bool) (*corev1.Node, error) {
	w.inFlight.Add(1)
	defer w.inFlight.Add(-1)
	node := &corev1.Node{}
	node.Name = name
	var err error
	if status {
		err = w.client.Status().Patch(ctx, node, patch, FieldOwner)
	} else {
		err = w.client.Patch(ctx, node, patch, FieldOwner)
	}
	if err != nil {
		return node, err
	}
	node = trimmed(node)
	w.remember(node)
	return node, nil
}

func (w *Writer) remember(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest[node.Name] = node
}

func trimmed(node *corev1.Node) *corev1.Node {
	kept, _ := Trim(node) // cannot fail
	return kept.(*corev1.Node)
}

// outdated reports whether a patch was refused because the node is not as it was read. A failed test is answered with
// 422, like an invalid object.
func outdated(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsConflict(err) }

func pause(ctx context.Context, attempt int) error {
	wait := firstPause << (attempt - 1)
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
