package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

type agent struct {
	fleet   *Fleet
	name    string
	id      string
	started time.Time
	wake    chan struct{} // renew now

	mu         sync.Mutex // held over writes: an agent writes one thing after the other
	uid        types.UID
	lease      *coordinationv1.Lease
	conditions []said
	unsaid     bool // the conditions changed in silence
	silent     bool
	host       *fettlev1alpha1.Host // as last seen
}

// said is a condition and since when it has its status.
type said struct {
	Condition
	since metav1.Time
}

func newAgent(f *Fleet, i int) *agent {
	a := &agent{fleet: f, name: fmt.Sprintf("%s%05d", f.opts.Prefix, i), started: time.Now(), wake: make(chan struct{}, 1)}
	a.id = a.name + "-simulated"
	for _, condition := range f.opts.Conditions {
		a.set(condition)
	}
	return a
}

// join makes the Node, says the conditions and takes the Lease. A Node that exists is taken as it is.
func (a *agent) join(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	nodes := a.fleet.clients.CoreV1().Nodes()
	node, err := nodes.Create(ctx, a.node(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, a.name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("make node %s: %w", a.name, err)
	}
	a.uid = node.UID
	if err := a.applyConditions(ctx); err != nil {
		return err
	}
	return a.renew(ctx)
}

func (a *agent) node() *corev1.Node {
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: a.name, Labels: a.fleet.opts.Labels},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
			}},
			Images: images(a.fleet.opts.Images),
		},
	}
}

// images gives as many images as a kubelet lists them: by digest and by tag.
func images(count int) []corev1.ContainerImage {
	var out []corev1.ContainerImage
	for i := range count {
		repository := fmt.Sprintf("registry.example.com/team-%02d/service-%02d", i%7, i)
		out = append(out, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, i), repository + ":v1.2.3"},
			SizeBytes: 50_000_000,
		})
	}
	return out
}

// beat renews the Lease until ctx ends, at a random phase so that a fleet's renewals spread.
func (a *agent) beat(ctx context.Context) {
	interval := a.fleet.opts.LeaseInterval
	next := time.NewTimer(rand.N(interval))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-next.C:
			next.Reset(interval)
		}
		a.mu.Lock()
		if !a.silent {
			if !a.fleet.resting.Load() {
				_ = a.renew(ctx) // counted; the next one is due soon
			}
			if a.unsaid {
				_ = a.say(ctx)
			}
		}
		a.mu.Unlock()
	}
}

// renew makes or renews the Lease. a.mu is held, as in everything below that writes.
func (a *agent) renew(ctx context.Context) error {
	if a.fleet.opts.NoLeases {
		return nil
	}
	leases := a.fleet.clients.CoordinationV1().Leases(fettlev1alpha1.LeaseNamespace)
	return a.fleet.record.measure(ctx, "lease", func() (err error) {
		defer func() {
			if err != nil { // read it again: it may be there, gone, or another's
				a.lease, _ = leases.Get(ctx, a.name, metav1.GetOptions{})
				if a.lease != nil && a.lease.Name == "" {
					a.lease = nil
				}
			}
		}()
		var stored *coordinationv1.Lease
		if a.lease == nil {
			stored, err = leases.Create(ctx, a.renewed(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: a.name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: a.name, UID: a.uid}},
			}}), metav1.CreateOptions{})
		} else {
			stored, err = leases.Update(ctx, a.renewed(a.lease), metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("renew the lease of %s: %w", a.name, err)
		}
		a.lease = stored
		return nil
	})
}

func (a *agent) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	next := lease.DeepCopy()
	next.Spec.HolderIdentity = &a.id
	next.Spec.LeaseDurationSeconds = ptr.To(max(1, int32((4 * a.fleet.opts.LeaseInterval).Seconds())))
	next.Spec.RenewTime = ptr.To(metav1.NowMicro())
	return next
}

func (a *agent) setSilent(silent bool) {
	a.mu.Lock()
	a.silent = silent
	a.mu.Unlock()
	if !silent {
		select {
		case a.wake <- struct{}{}:
		default: // it is about to wake
		}
	}
}

func (a *agent) setCondition(ctx context.Context, condition Condition) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(condition)
	if a.silent {
		a.unsaid = true
		return nil
	}
	return a.say(ctx)
}

// set changes or adds a condition; they are kept sorted by type.
func (a *agent) set(condition Condition) {
	if condition.Reason == "" {
		condition.Reason = "AllChecksOK"
	}
	next := said{Condition: condition, since: metav1.NewTime(time.Now().Truncate(time.Second))}
	i, found := slices.BinarySearchFunc(a.conditions, condition.Type, func(s said, name string) int { return strings.Compare(s.Type, name) })
	switch {
	case !found:
		a.conditions = slices.Insert(a.conditions, i, next)
	default:
		if a.conditions[i].Status == condition.Status {
			next.since = a.conditions[i].since
		}
		a.conditions[i] = next
	}
}

// say writes everything: the Node first, then the Host.
func (a *agent) say(ctx context.Context) error {
	err := a.applyConditions(ctx)
	if err == nil && a.host != nil {
		err = a.applyHost(ctx)
	}
	a.unsaid = err != nil
	return err
}

func (a *agent) applyConditions(ctx context.Context) error {
	status := corev1apply.NodeStatus()
	for _, c := range a.conditions {
		status.WithConditions(corev1apply.NodeCondition().WithType(corev1.NodeConditionType(c.Type)).WithStatus(c.Status).
			WithReason(c.Reason).WithMessage(c.Message).WithLastHeartbeatTime(metav1.Now()).WithLastTransitionTime(c.since))
	}
	return a.fleet.record.measure(ctx, "conditions", func() error {
		_, err := a.fleet.clients.CoreV1().Nodes().ApplyStatus(ctx, corev1apply.Node(a.name).WithUID(a.uid).WithStatus(status),
			metav1.ApplyOptions{FieldManager: kubeclient.FieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("apply the conditions of %s: %w", a.name, err)
		}
		return nil
	})
}

// meetHost takes note of the agent's Host, or of its absence, and answers it: one that does not carry our status gets
// it, and when the controller has called it Unknown the Node gets everything again first.
func (a *agent) meetHost(ctx context.Context, host *fettlev1alpha1.Host) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if host != nil && host.Spec.NodeUID != a.uid {
		host = nil // it reports on another Node
	}
	a.host = host
	if host == nil || a.silent || a.speaksForUs(host) {
		return nil
	}
	return a.say(ctx)
}

func (a *agent) speaksForUs(host *fettlev1alpha1.Host) bool {
	i := slices.IndexFunc(host.Status.Conditions, func(c metav1.Condition) bool { return c.Type == fettlev1alpha1.HostReady })
	return i >= 0 && host.Status.Conditions[i].Status == metav1.ConditionTrue && host.Status.Agent != nil && host.Status.Agent.ID == a.id
}
