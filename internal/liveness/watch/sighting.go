package watch

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// sighting is a lease or a Host as an informer showed it, or its end.
type sighting struct {
	node  string
	lease *coordinationv1.Lease
	host  *fettlev1alpha1.Host
	gone  bool
}

func leaseSighting(obj any) (sighting, bool) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return sighting{}, false
	}
	return sighting{node: lease.Name, lease: lease}, true
}

func hostSighting(obj any) (sighting, bool) {
	host, ok := obj.(*fettlev1alpha1.Host)
	if !ok {
		return sighting{}, false
	}
	return sighting{node: host.Name, host: host}, true
}

// follow passes on everything an informer shows, what it has already first, until stop is called.
func (w *Watch) follow(ctx context.Context, informer Informer, read func(any) (sighting, bool)) (registration cache.ResourceEventHandlerRegistration, stop func(), err error) {
	pass := func(obj any, gone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		s, ok := read(obj)
		if !ok {
			return
		}
		s.gone = gone
		select {
		case w.sightings <- s:
		case <-ctx.Done():
		}
	}
	registration, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { pass(obj, false) },
		UpdateFunc: func(_, obj any) { pass(obj, false) },
		DeleteFunc: func(obj any) { pass(obj, true) },
	})
	if err != nil {
		return nil, nil, err
	}
	return registration, func() { _ = informer.RemoveEventHandler(registration) }, nil // fails only for one that is not registered
}

func progressOf(lease *coordinationv1.Lease) liveness.Progress {
	var p liveness.Progress
	if lease.Spec.RenewTime != nil {
		p.RenewTime = lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	if lease.Spec.HolderIdentity != nil {
		p.Holder = *lease.Spec.HolderIdentity
	}
	return p
}

// durationOf is how long a lease lasts without a beat; 0 for one that does not say.
func durationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

// askedBy is the silence that a lease allows for: its duration and one interval, as the lease says, so that one beat may
// come late. A lease that does not tell its interval, or tells nonsense, is given the usual quarter of its duration.
func askedBy(lease *coordinationv1.Lease) time.Duration {
	duration := durationOf(lease)
	if duration == 0 {
		return 0
	}
	interval, err := time.ParseDuration(lease.Annotations[fettlev1alpha1.HeartbeatIntervalAnnotation])
	if err != nil || interval <= 0 || interval > duration {
		interval = duration / 4
	}
	return duration + interval
}
