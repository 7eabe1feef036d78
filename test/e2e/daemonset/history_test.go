package daemonset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// history is every version of the machine's Node, Host and Lease that the API server stored since a moment, so that a
// test sees what was true only between two of its looks.
type history struct {
	mu       sync.Mutex
	versions []version
	faults   []string
}

// version is one of them. Revisions order all three kinds: they are numbers of one etcd.
type version struct {
	revision int64
	at       time.Time // by our clock, when it reached us
	node     *corev1.Node
	host     *fettlev1alpha1.Host
	lease    *coordinationv1.Lease
}

// record begins a history. It starts with what is there now and ends with the test.
func (w *world) record(t *testing.T) *history {
	t.Helper()
	c, err := client.NewWithWatch(w.ControlPlane.Config(), client.Options{Scheme: w.Client.Scheme()})
	must(t, err)
	h := &history{}
	named := client.MatchingFields{"metadata.name": nodeName}
	for list, options := range map[client.ObjectList][]client.ListOption{
		&corev1.NodeList{}:          {named},
		&fettlev1alpha1.HostList{}:  {named},
		&coordinationv1.LeaseList{}: {named, client.InNamespace(fettlev1alpha1.LeaseNamespace)},
	} {
		events, err := c.Watch(t.Context(), list, options...)
		must(t, err)
		t.Cleanup(events.Stop)
		go h.listen(t.Context(), events)
	}
	h.catchUp(t, w)
	return h
}

func (h *history) listen(ctx context.Context, events watch.Interface) {
	for event := range events.ResultChan() {
		h.add(event)
	}
	if ctx.Err() == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.faults = append(h.faults, "a watch ended early")
	}
}

func (h *history) add(event watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := version{at: time.Now()}
	object, ok := event.Object.(client.Object)
	if !ok {
		h.faults = append(h.faults, fmt.Sprintf("a watch says %+v", event.Object))
		return
	}
	v.revision, _ = strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	switch o := event.Object.(type) {
	case *corev1.Node:
		v.node = o
	case *fettlev1alpha1.Host:
		v.host = o
	case *coordinationv1.Lease:
		v.lease = o
	}
	h.versions = append(h.versions, v)
}

// read waits until what is stored now has reached the history, and returns it in the order in which it was stored.
func (h *history) read(t *testing.T, w *world) []version {
	t.Helper()
	h.catchUp(t, w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) > 0 {
		t.Fatal(h.faults)
	}
	all := slices.Clone(h.versions)
	slices.SortFunc(all, func(a, b version) int { return int(a.revision - b.revision) })
	return all
}

func (h *history) catchUp(t *testing.T, w *world) {
	t.Helper()
	node := w.node(t)
	host, err := w.GetHost(t.Context(), nodeName)
	must(t, err)
	lease, err := w.lease(t.Context())
	must(t, err)
	for _, object := range []client.Object{node, host, lease} {
		must(t, stack.Await(t.Context(), "the history to reach the present", func(context.Context) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, v := range h.versions {
				if fmt.Sprint(v.revision) == object.GetResourceVersion() {
					return nil
				}
			}
			return fmt.Errorf("%T of revision %s is not in the history %v", object, object.GetResourceVersion(), h.faults)
		}))
	}
}

// beats are the different times at which the lease was renewed.
func beats(versions []version) int {
	seen := map[string]bool{}
	for _, v := range versions {
		if v.lease != nil && v.lease.Spec.RenewTime != nil {
			seen[v.lease.Spec.RenewTime.String()] = true
		}
	}
	return len(seen)
}

// neverSilent fails the test when the agent counted as silent in one of the versions.
func neverSilent(t *testing.T, versions []version) {
	t.Helper()
	for _, v := range versions {
		if v.node != nil {
			for _, name := range conditionTypes {
				if c := stack.FindCondition(v.node, name); c == nil || c.Status == corev1.ConditionUnknown {
					t.Errorf("at %s the node said %s %+v", v.at.Format(time.TimeOnly), name, c)
				}
			}
		}
		if v.host != nil {
			for _, c := range v.host.Status.Conditions {
				if c.Type == fettlev1alpha1.HostReady && c.Status != "True" {
					t.Errorf("at %s the host said %+v", v.at.Format(time.TimeOnly), c)
				}
			}
		}
	}
}
