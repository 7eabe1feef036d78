package stack

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// awaitLimit is far beyond what anything here takes; it only ends a test that would wait for ever.
const awaitLimit = 3 * time.Minute

// Await repeats a look until it finds nothing wrong.
func Await(ctx context.Context, what string, look func(context.Context) error) error {
	return AwaitWithin(ctx, awaitLimit, what, look)
}

// AwaitWithin is Await with another limit, for machines that are slow.
func AwaitWithin(ctx context.Context, limit time.Duration, what string, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // else the look was cut short
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Holds repeats a look for a while and gives the first thing that it finds wrong.
func Holds(ctx context.Context, during time.Duration, look func(context.Context) error) error {
	end := time.NewTimer(during)
	defer end.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
}

// GetNode reads a Node from the API server.
func (s *Stack) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return nil, err
	}
	return &node, nil
}

// GetHost reads a Host from the API server.
func (s *Stack) GetHost(ctx context.Context, name string) (*fettlev1alpha1.Host, error) {
	var host fettlev1alpha1.Host
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &host); err != nil {
		return nil, err
	}
	return &host, nil
}

// Says is a look at a node's condition: it is wrong unless it has that status and, when given, reason.
func (s *Stack) Says(node, condition string, status corev1.ConditionStatus, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := s.GetNode(ctx, node)
		if err != nil {
			return err
		}
		is := FindCondition(n, condition)
		if is == nil {
			return fmt.Errorf("node %s has no condition %s", node, condition)
		}
		if is.Status != status || (reason != "" && is.Reason != reason) {
			return fmt.Errorf("node %s: %s is %s %s (%s), want %s %s", node, condition, is.Status, is.Reason, is.Message, status, reason)
		}
		return nil
	}
}

// Tainted is a look at a node's taints: it is wrong unless the taint is there, or is not, as wanted.
func (s *Stack) Tainted(node, key string, want bool) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := s.GetNode(ctx, node)
		if err != nil {
			return err
		}
		has := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		if has != want {
			return fmt.Errorf("node %s has taint %s: %t, want %t (%v)", node, key, has, want, n.Spec.Taints)
		}
		return nil
	}
}

// HostReady is a look at a Host's condition Ready.
func (s *Stack) HostReady(name string, status metav1.ConditionStatus, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		host, err := s.GetHost(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range host.Status.Conditions {
			if c.Type == fettlev1alpha1.HostReady {
				if c.Status == status && c.Reason == reason {
					return nil
				}
				return fmt.Errorf("host %s: Ready is %s %s, want %s %s", name, c.Status, c.Reason, status, reason)
			}
		}
		return fmt.Errorf("host %s has no condition Ready", name)
	}
}

// All is a look that is right when every one of several is.
func All(looks ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, look := range looks {
			if err := look(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// FindCondition returns the node's condition of that type, or nil.
func FindCondition(node *corev1.Node, name string) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if string(node.Status.Conditions[i].Type) == name {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
