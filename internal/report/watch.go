package report

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// HostAPI is what watching a Host takes.
type HostAPI interface {
	ListHost(ctx context.Context, name string) (*fettlev1alpha1.HostList, error)
	WatchHost(ctx context.Context, name, resourceVersion string, d time.Duration) (watch.Interface, error)
}

const (
	// A watch is ended by the server after a random time between these, so that a fleet's watches do not end together.
	shortestWatch = 5 * time.Minute
	longestWatch  = 10 * time.Minute
	// longestWatchWait bounds the wait after failures; also how late a CRD that is installed later is noticed.
	longestWatchWait = 15 * time.Second
)

// HostWatch follows one Host by name. That the Host, or the kind, does not exist is no fault.
type HostWatch struct {
	API  HostAPI
	Name string
	// Seen is told of the Host whenever it may have changed; nil: there is none.
	Seen func(*fettlev1alpha1.Host)
	Log  *slog.Logger

	resourceVersion string // to go on from; empty: list first
	failures        int    // in a row
	said            bool   // that it fails
}

// Run watches until the context ends.
func (w *HostWatch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.failed(err)
		}
		wait := min(backoff(w.failures+1, 0, rand.Float64()), longestWatchWait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (w *HostWatch) failed(err error) {
	w.failures++
	if !w.said && !apierrors.IsNotFound(err) && !errors.Is(err, errExpired) {
		w.said = true
		w.Log.Warn("cannot watch the host object; tried again until it works", "error", err)
	}
}

func (w *HostWatch) works() {
	if w.said {
		w.Log.Info("watching the host object works again")
	}
	w.failures, w.said = 0, false
}

// errExpired : the version to go on from is gone, as happens after a long time away.
var errExpired = errors.New("the resourceVersion to watch from has expired")

// pass lists if it must, then watches until the watch ends. A watch that was ended by the server is no error.
func (w *HostWatch) pass(ctx context.Context) error {
	if w.resourceVersion == "" {
		list, err := w.API.ListHost(ctx, w.Name)
		if apierrors.IsNotFound(err) {
			w.Seen(nil) // the kind is not there, so the Host is not
			return err
		}
		if err != nil {
			return err
		}
		var host *fettlev1alpha1.Host
		if len(list.Items) > 0 {
			host = &list.Items[0]
		}
		w.Seen(host)
		w.resourceVersion = list.ResourceVersion
	}
	lasts := shortestWatch + time.Duration(rand.Float64()*float64(longestWatch-shortestWatch))
	events, err := w.API.WatchHost(ctx, w.Name, w.resourceVersion, lasts)
	if err != nil {
		w.forget(err)
		return err
	}
	defer events.Stop()
	w.works()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if err := w.take(event); err != nil {
				return err
			}
		}
	}
}

func (w *HostWatch) take(event watch.Event) error {
	host, isHost := event.Object.(*fettlev1alpha1.Host)
	if event.Type == watch.Error || !isHost {
		err := apierrors.FromObject(event.Object)
		w.forget(err)
		if w.resourceVersion == "" {
			return errExpired
		}
		return err
	}
	w.resourceVersion = host.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		w.Seen(host)
	case watch.Deleted:
		w.Seen(nil)
	}
	return nil
}

// forget drops the version to go on from where the server has no use for it.
func (w *HostWatch) forget(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsNotFound(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonInvalid {
		w.resourceVersion = ""
	}
}
