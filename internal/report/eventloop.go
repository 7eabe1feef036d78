package report

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// EventAPI is what telling takes. Every call must bring its own deadline.
type EventAPI interface {
	CreateEvent(ctx context.Context, e kubeclient.Event) error
	RepeatEvent(ctx context.Context, name string, count int, at metav1.MicroTime) error
}

// Run sends what waits until the context ends. What is left then waits for the next Run.
func (e *Events) Run(ctx context.Context, api EventAPI) {
	for ctx.Err() == nil {
		var timer <-chan time.Time
		if wait := e.pass(ctx, api); wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-timer:
		}
	}
}

// pass sends what can be sent now, and says how long to wait before the next try; 0 is until something happens.
func (e *Events) pass(ctx context.Context, api EventAPI) time.Duration {
	for ctx.Err() == nil {
		o, ok, wait := e.take(time.Now())
		if !ok {
			return wait
		}
		err := e.send(ctx, api, o.event, time.Now())
		switch {
		case err == nil:
			e.sent(o)
		case !refusedForGood(err):
			e.giveBack(o)
			e.failures++
			return backoff(e.failures, retryAfter(err), rand.Float64())
		default:
			e.drop(o)
			if !e.said {
				e.said = true
				e.o.Log.Warn("an event is lost, and others may be: the API server refuses it", "reason", o.event.Reason, "error", err)
			}
		}
		e.failures = 0
	}
	return 0
}

// take hands out the first that may be sent now; where there is none, wait is how long until the budget allows one, 0 when
// it is nothing that the budget holds back.
func (e *Events) take(now time.Time) (o occasion, ok bool, wait time.Duration) {
	node, host, settled := kubeclient.NodeObject(e.o.Node, e.o.NodeUID()), kubeclient.HostObject(e.o.Node, e.o.HostUID()), e.o.Settled()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, o := range e.waiting {
		o.event.About = node
		if o.life {
			o.event.About = host
		}
		if o.event.About.UID == "" || !settled && o.topic != "" {
			continue
		}
		if !o.paid {
			if until := e.budget.spend(o.subject, now); until > 0 {
				wait = soonest(wait, until)
				continue
			}
			o.paid = true
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		return o, true, 0
	}
	return occasion{}, false, wait
}

// sent notes that a check was told of.
func (e *Events) sent(o occasion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts.Sent++
	if o.topic != "" && !o.life {
		e.told[o.topic] = o.state
	}
}

// drop notes that it never will be.
func (e *Events) drop(o occasion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts.Dropped++
	if o.topic != "" && !o.life {
		e.told[o.topic] = o.state
	}
}

// giveBack has it wait again, unless there is something newer on the same subject.
func (e *Events) giveBack(o occasion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, newer := range e.waiting {
		if newer.subject == o.subject {
			return
		}
	}
	e.waiting = append([]occasion{o}, e.waiting...)
}

// refusedForGood reports whether the API server gave an answer that will not change.
func refusedForGood(err error) bool {
	switch {
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return false
	default:
		return apierrors.ReasonForError(err) != "" && !errors.Is(err, context.DeadlineExceeded)
	}
}

func retryAfter(err error) time.Duration {
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(s) * time.Second
	}
	return 0
}

// send stores an event, as one more of those before if it says the same.
func (e *Events) send(ctx context.Context, api EventAPI, event kubeclient.Event, now time.Time) error {
	at := metav1.NewMicroTime(now.UTC())
	if last := e.recent.find(event, now); last != nil {
		err := api.RepeatEvent(ctx, last.name, last.count+1, at)
		if err == nil {
			last.count, last.at = last.count+1, now
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		e.recent.forget(last.name)
	}
	event.Name, event.At = eventName(event.About.Name, now), at
	event.Controller, event.Instance = eventController, shorten(e.o.Instance, maxInstance)
	if err := api.CreateEvent(ctx, event); err != nil {
		return err
	}
	e.recent.add(event, now)
	return nil
}

// maxInstance is what the API server accepts as a reportingInstance, in bytes.
const maxInstance = 128

// eventName is unique enough among the events of a node: the time, as for client-go's. A name of an object has at most
// 253 bytes, and each of its parts between dots ends in a letter or digit.
func eventName(node string, now time.Time) string {
	return fmt.Sprintf("%s.%x", strings.TrimRight(fmt.Sprintf("%.230s", node), "-."), now.UnixNano())
}

const (
	// repeatWithin is how long after an event the same counts as its repetition. The API server keeps events for an hour.
	repeatWithin = 30 * time.Minute
	maxRecent    = 32
)

// recentEvents are the events sent last, oldest first.
type recentEvents []recentEvent

type recentEvent struct {
	same  kubeclient.Event // without what differs from one time to the next
	name  string
	count int
	at    time.Time
}

func sameness(e kubeclient.Event) kubeclient.Event {
	e.Name, e.At, e.Controller, e.Instance = "", metav1.MicroTime{}, "", ""
	return e
}

func (r recentEvents) find(event kubeclient.Event, now time.Time) *recentEvent {
	same := sameness(event)
	for i := range r {
		if r[i].same == same && now.Sub(r[i].at) < repeatWithin {
			return &r[i]
		}
	}
	return nil
}

func (r *recentEvents) forget(name string) {
	kept := (*r)[:0]
	for _, e := range *r {
		if e.name != name {
			kept = append(kept, e)
		}
	}
	*r = kept
}

func (r *recentEvents) add(event kubeclient.Event, now time.Time) {
	if len(*r) == maxRecent {
		*r = append((*r)[:0], (*r)[1:]...)
	}
	*r = append(*r, recentEvent{same: sameness(event), name: event.Name, count: 1, at: now})
}
