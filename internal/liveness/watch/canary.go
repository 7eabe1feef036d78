package watch

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
)

const (
	// slowestBeat is the time between two renewals of the canary, and longestSight how old the newest that was seen may be. Both
	// are less with a short grace period: blindness must be noticed before any silence is.
	slowestBeat  = 5 * time.Second
	longestSight = 25 * time.Second
	// remembered bounds the renewals that are looked for.
	remembered = 8
)

// canary is what is known of the lease that the controller renews among those of the agents. While these renewals reach it
// through its watch, those of the agents would, too. It belongs to the goroutine of Watch.Start.
type canary struct {
	holder string
	// interval between renewals; patience is how old the newest that was seen may be.
	interval, patience time.Duration
	began              time.Time
	// sent are the times of renewals not seen yet, oldest first; microseconds make each unique.
	sent []time.Time
	// seen is when the newest renewal that was seen had been sent; zero before the first.
	seen time.Time
	// beating is true while a renewal is under way, next when the next is due.
	beating bool
	next    time.Time
	// fault is that of the last renewal.
	fault error
}

func newCanary(now time.Time, grace time.Duration) canary {
	name, err := os.Hostname()
	if err != nil {
		name = "controller"
	}
	return canary{
		holder:   name + "_" + rand.Text(),
		interval: min(slowestBeat, grace/10),
		patience: min(longestSight, grace/2),
		began:    now,
	}
}

// age is how old the newest renewal is that came through the watch.
func (c *canary) age(now time.Time) time.Duration {
	if c.proven() {
		return now.Sub(c.seen)
	}
	return now.Sub(c.began)
}

func (c *canary) proven() bool { return !c.seen.IsZero() }

// sight says whether the controller sees what changes among the leases, and if not, why.
func (c *canary) sight(now time.Time) fleet.Sight {
	sight := fleet.Sight{Proven: c.proven()}
	if c.age(now) <= c.patience {
		return sight
	}
	sight.Lost, sight.Message = fleet.ReasonWatchStalled, fmt.Sprintf("no renewal of lease %s came through the watch within %s", fettlev1alpha1.CanaryLease, c.patience)
	if c.fault != nil {
		sight.Lost, sight.Message = reasonOf(c.fault), c.fault.Error()
	}
	return sight
}

func reasonOf(fault error) string {
	switch {
	case apierrors.HasStatusCause(fault, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(fault):
		return fleet.ReasonLeasesMissing
	case apierrors.IsForbidden(fault), apierrors.IsUnauthorized(fault):
		return fleet.ReasonLeasesForbidden
	}
	return fleet.ReasonAPIUnreachable
}

// sighted takes in the canary as the watch shows it. Renewals of other controllers prove nothing: they may be from before the
// watch began.
func (c *canary) sighted(lease *coordinationv1.Lease) {
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != c.holder || lease.Spec.RenewTime == nil {
		return
	}
	i := slices.IndexFunc(c.sent, func(at time.Time) bool {
		return lease.Spec.RenewTime.Equal(&metav1.MicroTime{Time: at.Truncate(time.Microsecond)})
	})
	if i >= 0 {
		c.seen = c.sent[i]
		c.sent = slices.Delete(c.sent, 0, i+1)
	}
}

// beat is a renewal of the canary, and how it ended.
type beat struct {
	at  time.Time
	err error
}

// beat renews the canary when it is time to, and leaves the checkpoint on it.
func (w *Watch) beat(ctx context.Context, now time.Time) {
	c := &w.canary
	if c.beating || now.Before(c.next) {
		return
	}
	c.beating, c.next = true, now.Add(c.interval)
	c.sent = append(c.sent, now)
	if len(c.sent) > remembered {
		c.sent = c.sent[1:]
	}
	left, err := w.checkpoint(now).encode()
	if err != nil {
		w.Log.Error(err, "cannot leave a checkpoint")
	}
	holder, late := c.holder, c.age(now) > c.patience/2
	go func() {
		err := w.renew(ctx, holder, now, left, late)
		select {
		case w.beats <- beat{at: now, err: err}:
		case <-ctx.Done():
		}
	}()
}

func (c *canary) beaten(b beat) {
	c.beating = false
	c.fault = b.err
}

// renew renews the canary. When renewals come late it tries, too, what the watch needs.
func (w *Watch) renew(ctx context.Context, holder string, at time.Time, left string, late bool) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	lease, err := w.readLive(ctx, fettlev1alpha1.CanaryLease)
	if err != nil {
		return fmt.Errorf("read lease %s: %w", fettlev1alpha1.CanaryLease, err)
	}
	renewed := metav1.NewMicroTime(at)
	fresh := lease == nil
	if fresh {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: fettlev1alpha1.LeaseNamespace, Name: fettlev1alpha1.CanaryLease}}
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &renewed
	lease.Spec.LeaseDurationSeconds = new(int32(max(w.canary.patience/time.Second, 1)))
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if lease.Annotations[checkpointAnnotation] = left; left == "" {
		delete(lease.Annotations, checkpointAnnotation)
	}
	if fresh {
		err = w.Client.Create(ctx, lease)
	} else {
		err = w.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", fettlev1alpha1.CanaryLease, err)
	}
	if late {
		if err := w.Live.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(fettlev1alpha1.LeaseNamespace), client.Limit(1)); err != nil {
			return fmt.Errorf("list leases: %w", err)
		}
	}
	return nil
}
