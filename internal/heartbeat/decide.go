package heartbeat

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// Action is what is to be done with the Lease.
type Action string

const (
	// Create : there is no Lease.
	Create Action = "create"
	// Renew : the Lease is ours.
	Renew Action = "renew"
	// TakeOver : the Lease is our predecessor's, nobody's, or a holder's that fell silent.
	TakeOver Action = "take over"
	// Yield : another agent holds the Lease and lives.
	Yield Action = "yield"
)

// Self is who we are and who we were.
type Self struct {
	// Holder is our holderIdentity, new for every process.
	Holder string
	// Predecessors are the identities of earlier processes with this state folder.
	Predecessors []string
}

// Sighting is what we last saw of a foreign holder.
type Sighting struct {
	// Holder and RenewTime as they stand in the Lease; they are compared, never interpreted.
	Holder    string
	RenewTime metav1.MicroTime
	// Since is when we first saw this pair, by our clock.
	Since time.Time
}

// Decide says what to do with a Lease (nil: there is none), and what to remember of a foreign holder until the next
// look. It trusts no clock but ours, since a holder's may be wrong: silence is a renewTime that stays as it is.
func Decide(lease *coordinationv1.Lease, self Self, prev Sighting, now time.Time) (Action, Sighting) {
	if lease == nil {
		return Create, Sighting{}
	}
	holder := holderOf(lease)
	switch {
	case holder == self.Holder:
		return Renew, Sighting{}
	case holder == "", slices.Contains(self.Predecessors, holder):
		return TakeOver, Sighting{}
	}
	seen := Sighting{Holder: holder, Since: now}
	if lease.Spec.RenewTime != nil {
		seen.RenewTime = *lease.Spec.RenewTime
	}
	if prev.Holder != seen.Holder || !prev.RenewTime.Equal(&seen.RenewTime) {
		return Yield, seen
	}
	if now.Sub(prev.Since) <= patienceWith(lease) {
		return Yield, prev
	}
	return TakeOver, prev
}

// patienceWith is how long a foreign holder may make no progress before its Lease is taken over: its duration less one
// interval, so that whoever watches the Lease for its duration and one interval does not see a silence in between; but at
// least two intervals, so that a holder that lives is never overtaken.
func patienceWith(lease *coordinationv1.Lease) time.Duration {
	duration := durationOf(lease)
	interval, err := time.ParseDuration(lease.Annotations[fettlev1alpha1.HeartbeatIntervalAnnotation])
	if err != nil || interval <= 0 || interval > duration {
		interval = duration / 4
	}
	return max(duration-interval, 2*interval)
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// durationOf is how long the holder of a Lease may be silent. A Lease that does not say is given the default.
func durationOf(lease *coordinationv1.Lease) time.Duration {
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return DefaultLeaseDuration
}

// Owner is the Node that a Lease goes with.
type Owner struct {
	Name string
	UID  types.UID
}

// renewed is the Lease to write: last with our identity, a new renewTime, and the Node as owner so that the Lease is
// collected with it. A nil last makes a new Lease. Other owners, labels and annotations are kept.
func renewed(last *coordinationv1.Lease, namespace, holder string, node Owner, interval, duration time.Duration, now time.Time) *coordinationv1.Lease {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node.Name}}
	if last != nil {
		next = last.DeepCopy()
	}
	at := renewTime(last, now)
	if last == nil || holderOf(last) != holder {
		if last != nil {
			transitions := int32(1)
			if last.Spec.LeaseTransitions != nil {
				transitions += *last.Spec.LeaseTransitions
			}
			next.Spec.LeaseTransitions = &transitions
		}
		next.Spec.AcquireTime = &at
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, fettlev1alpha1.HeartbeatIntervalAnnotation, interval.String())
	seconds := int32(duration / time.Second)
	next.Spec.HolderIdentity = &holder
	next.Spec.LeaseDurationSeconds = &seconds
	next.Spec.RenewTime = &at
	next.OwnerReferences = slices.DeleteFunc(next.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Node" && r.APIVersion == "v1"
	})
	next.OwnerReferences = append(next.OwnerReferences, metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
	})
	return next
}

// renewTime is now, or a microsecond after the last one when the clock did not move: whoever watches sees a beat only if
// the value changes. A clock that stepped back is not corrected, since no reader compares two clocks.
func renewTime(last *coordinationv1.Lease, now time.Time) metav1.MicroTime {
	at := metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond))
	if last != nil && last.Spec.RenewTime != nil && last.Spec.RenewTime.Equal(&at) {
		at = metav1.NewMicroTime(at.Add(time.Microsecond))
	}
	return at
}
