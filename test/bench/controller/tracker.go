package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// tracker follows all nodes by one watch and times how long a taint follows after the condition that it is about, each as
// the watch shows it. It serves the controller and the bare loop alike, so what the watch itself costs is in both.
type tracker struct {
	rules int // how many there are

	mu sync.Mutex
	// The following are guarded by mu.

	// seen is what the watch showed last, by node and rule.
	seen map[place]state
	// wants has whether a taint has to be there, while it is not so.
	wants map[place]bool
	// took are the times from a condition to its taint, overtaken counts conditions that changed back before that.
	took      []time.Duration
	overtaken int
	// born has when nodes were first seen that have not had all taints yet, known all nodes ever seen, joins how long nodes
	// took to get all taints at first.
	born  map[string]time.Time
	known map[string]bool
	joins []time.Duration
}

type place struct {
	node string
	rule int
}

// state is one condition of a node and its taint.
type state struct {
	fine, held bool
	// turned is when the condition changed; zero once the taint has followed.
	turned time.Time
}

func newTracker(rules int) *tracker {
	return &tracker{rules: rules, seen: map[place]state{}, wants: map[place]bool{}, born: map[string]time.Time{}, known: map[string]bool{}}
}

// follow watches until the context ends, through restarts of the API server. It takes events one by one in the order in
// which they arrive; an informer would show those of one node together when this process is behind.
func (t *tracker) follow(ctx context.Context, clients kubernetes.Interface) {
	version := ""
	for ctx.Err() == nil {
		var err error
		if version, err = t.watch(ctx, clients, version); err != nil {
			_ = wait(ctx, 100*time.Millisecond) // the API server is away; who waits for what it shows has a limit
		}
	}
}

// watch follows all nodes from a version on, from a list if there is none, until the API server ends the watch, as a busy one
// does now and then. It gives the version to go on from.
func (t *tracker) watch(ctx context.Context, clients kubernetes.Interface, version string) (string, error) {
	if version == "" {
		list, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			t.see(&list.Items[i], time.Now())
		}
		version = list.ResourceVersion
	}
	watch, err := clients.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			version = ""
		}
		return version, err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		node, is := event.Object.(*corev1.Node)
		if !is { // an error: what we know is too old
			return "", apierrors.FromObject(event.Object)
		}
		version = node.ResourceVersion
		t.see(node, time.Now())
	}
	return version, nil
}

func (t *tracker) see(node *corev1.Node, now time.Time) {
	held, fine := map[string]bool{}, map[string]bool{}
	for _, taint := range node.Spec.Taints {
		held[taint.Key] = true
	}
	for _, c := range node.Status.Conditions {
		fine[string(c.Type)] = c.Status == corev1.ConditionTrue
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := true
	for rule := range t.rules {
		key := taintKey(rule)
		t.turn(place{node.Name, rule}, fine[conditionType(rule)], held[key], now)
		all = all && held[key]
	}
	if node.Labels[poolLabel] != controlled {
		return
	}
	if !t.known[node.Name] {
		t.known[node.Name], t.born[node.Name] = true, now
	}
	if since, waits := t.born[node.Name]; waits && all {
		t.joins = append(t.joins, now.Sub(since))
		delete(t.born, node.Name)
	}
}

// turn must be called with mu held.
func (t *tracker) turn(p place, fine, held bool, now time.Time) {
	s := t.seen[p]
	if fine != s.fine {
		if !s.turned.IsZero() {
			t.overtaken++
		}
		s.turned = now
	}
	if held != fine && !s.turned.IsZero() {
		t.took = append(t.took, now.Sub(s.turned))
		s.turned = time.Time{}
	}
	s.fine, s.held = fine, held
	t.seen[p] = s
	if want, open := t.wants[p]; open && want == held {
		delete(t.wants, p)
	}
}

// want says whether a taint should be there from now on.
func (t *tracker) want(p place, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wants, p)
	if t.seen[p].held != held {
		t.wants[p] = held
	}
}

// take gives the times since the last call, and how many changes were overtaken.
func (t *tracker) take() (took []time.Duration, overtaken int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took, overtaken = t.took, t.overtaken
	t.took, t.overtaken = nil, 0
	return took, overtaken
}

func (t *tracker) takeJoins() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	joins := t.joins
	t.joins = nil
	return joins
}

// open gives how many taints are not as wanted, and one of them.
func (t *tracker) open() (count int, example string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, held := range t.wants {
		return len(t.wants), fmt.Sprintf("whether node %s has taint %s should be %v", p.node, taintKey(p.rule), held)
	}
	return 0, ""
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
