package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// eventStore takes events as the API server does. That the API server takes them too is tested in internal/agent.
type eventStore struct {
	mu     sync.Mutex
	fault  error
	stored []kubeclient.Event
	counts map[string]int
}

func (s *eventStore) CreateEvent(_ context.Context, e kubeclient.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	s.stored = append(s.stored, e)
	return nil
}

func (s *eventStore) RepeatEvent(_ context.Context, name string, count int, _ metav1.MicroTime) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	for _, e := range s.stored {
		if e.Name == name {
			s.counts[name] = count
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
}

func (s *eventStore) set(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// say lists what is stored, e.g. "Warning Broken x2".
func (s *eventStore) say() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, e := range s.stored {
		word := e.Type + " " + e.Reason
		if n := s.counts[e.Name]; n > 0 {
			word += fmt.Sprintf(" x%d", n)
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// telling is a queue of events that runs.
type telling struct {
	*Events
	store   *eventStore
	mu      sync.Mutex
	settled bool
	host    types.UID
}

func (q *telling) settle(settled bool) {
	q.mu.Lock()
	q.settled = settled
	q.mu.Unlock()
	q.Wake()
}

// tell runs test with a queue under fake time.
func tell(t *testing.T, test func(t *testing.T, q *telling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &telling{store: &eventStore{counts: map[string]int{}}, settled: true}
		q.Events = NewEvents(EventOptions{
			Node: "n", Instance: "n_1", NodeUID: func() types.UID { return "uid-1" }, Log: slog.New(slog.DiscardHandler),
			HostUID: func() types.UID {
				q.mu.Lock()
				defer q.mu.Unlock()
				return q.host
			},
			Settled: func() bool {
				q.mu.Lock()
				defer q.mu.Unlock()
				return q.settled
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { q.Run(ctx, q.store); close(done) }()
		test(t, q)
		stop()
		<-done
	})
}

func state(verdict health.Verdict, reason string) health.CheckState {
	return health.CheckState{Name: "net", Result: health.Result{Verdict: verdict, Reason: reason, Message: "no file"}}
}

var (
	pending = state(health.Unknown, health.ReasonPending)
	fine    = state(health.OK, health.ReasonOK)
	broken  = state(health.Fatal, "Broken")
	slow    = state(health.Degraded, "Slow")
)

func TestEventsOfTransitions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		states []health.CheckState
		want   string
	}{
		{name: "a check that is well at the start is not worth one", states: []health.CheckState{pending, fine}},
		{name: "one that is not is", states: []health.CheckState{pending, broken}, want: "Warning Broken"},
		{name: "another reason is, in either direction", states: []health.CheckState{fine, broken, slow, fine}, want: "Warning Broken, Warning Slow, Normal OK"},
		{name: "looking anew is not, nor is finding the same", states: []health.CheckState{fine, broken, pending, broken}, want: "Warning Broken"},
		{name: "but finding it well is", states: []health.CheckState{fine, broken, pending, fine}, want: "Warning Broken, Normal OK"},
		{name: "having nothing to look at any more is not", states: []health.CheckState{fine, state(health.NotApplicable, health.ReasonNotApplicable)}},
		{name: "the same once more is a series", states: []health.CheckState{fine, broken, fine, broken, fine, broken}, want: "Warning Broken x3, Normal OK x2"},
		{name: "a conflict of identities has its own", states: []health.CheckState{fine, state(health.Fatal, ReasonIdentityConflict)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tell(t, func(t *testing.T, q *telling) {
				for i, s := range tc.states[1:] {
					q.Transition(tc.states[i], s, "fettle.dev/NetworkReady")
					synctest.Wait()
					time.Sleep(time.Second)
				}
				if got := q.store.say(); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
			})
		})
	}
}

func TestADryRunTellsNothing(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		dry := broken
		dry.DryRun = true
		q.Transition(fine, dry, "c")
		synctest.Wait()
		if got := q.store.say(); got != "" {
			t.Error(got)
		}
	})
}

func TestEventsSayWhatTheyAreAbout(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		long := broken
		long.Message = strings.Repeat("é\n", 2000)
		q.Transition(fine, broken, "fettle.dev/NetworkReady")
		synctest.Wait()
		q.Transition(broken, fine, "fettle.dev/NetworkReady")
		synctest.Wait()
		q.Transition(fine, long, "fettle.dev/NetworkReady")
		synctest.Wait()
		got := q.store.stored
		if got[0].Note != "net: no file (fettle.dev/NetworkReady)" || got[1].Note != "net is well again after Broken (fettle.dev/NetworkReady)" {
			t.Errorf("notes are %q and %q", got[0].Note, got[1].Note)
		}
		if len(got[2].Note) > maxNote || strings.Contains(got[2].Note, "\n") {
			t.Errorf("a note of %d bytes", len(got[2].Note))
		}
		if e := got[0]; e.About != kubeclient.NodeObject("n", "uid-1") || e.Controller != "fettle-nodeagent" || e.Instance != "n_1" || e.Action == "" || !strings.HasPrefix(e.Name, "n.") {
			t.Errorf("event is %+v", e)
		}
	})
}

func TestWhatWaitsIsSummarised(t *testing.T) {
	away := errors.New("connection refused")
	for _, tc := range []struct {
		name   string
		keep   func(q *telling, back bool)
		states []health.CheckState
		want   string
	}{
		{name: "by where it ends while the conditions wait", keep: func(q *telling, back bool) { q.settle(back) },
			states: []health.CheckState{fine, broken, fine, broken, slow}, want: "Warning Slow"},
		{name: "by nothing when it ends where it began", keep: func(q *telling, back bool) { q.settle(back) },
			states: []health.CheckState{fine, broken, slow, fine}},
		{name: "also while the API server is away", keep: func(q *telling, back bool) {
			if back {
				q.store.set(nil)
			} else {
				q.store.set(away)
			}
		}, states: []health.CheckState{fine, broken, slow, broken, slow}, want: "Warning Slow"},
		{name: "or throttles", keep: func(q *telling, back bool) {
			if back {
				q.store.set(nil)
			} else {
				q.store.set(apierrors.NewTooManyRequests("later", 7))
			}
		}, states: []health.CheckState{fine, slow, broken}, want: "Warning Broken"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tell(t, func(t *testing.T, q *telling) {
				tc.keep(q, false)
				for i, s := range tc.states[1:] {
					q.Transition(tc.states[i], s, "c")
					time.Sleep(time.Minute)
				}
				if got := q.store.say(); got != "" {
					t.Errorf("told too early: %s", got)
				}
				tc.keep(q, true)
				time.Sleep(time.Minute)
				if got := q.store.say(); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				if c := q.Counts(); c.Dropped != 0 {
					t.Errorf("counts are %+v", c)
				}
			})
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Run("in how many are sent of one check, which is told of later as it is then", func(t *testing.T) {
		tell(t, func(t *testing.T, q *telling) {
			for range 50 {
				q.Transition(fine, broken, "c")
				synctest.Wait()
				q.Transition(broken, fine, "c")
				synctest.Wait()
			}
			q.Transition(fine, slow, "c")
			synctest.Wait()
			if c := q.Counts(); c.Sent != topicBurst || c.Dropped != 0 {
				t.Errorf("counts are %+v", c)
			}
			time.Sleep(time.Second) // the time is in an event's name
			other := broken
			other.Name, other.Reason = "disk", "Full"
			q.Transition(pending, other, "c")
			synctest.Wait()
			if got := q.store.say(); !strings.HasSuffix(got, ", Warning Full") {
				t.Errorf("another check is not told of: %s", got)
			}
			time.Sleep(topicEvery + time.Second)
			if got := q.store.say(); !strings.HasSuffix(got, ", Warning Full, Warning Slow") {
				t.Errorf("after another %s: %s", topicEvery, got)
			}
		})
	})
	t.Run("in how many are sent of all", func(t *testing.T) {
		tell(t, func(t *testing.T, q *telling) {
			for i := range eventBurst + 2 {
				s := broken
				s.Name = fmt.Sprint("check-", i)
				q.Transition(fine, s, "c")
			}
			for _, want := range []uint64{eventBurst, eventBurst + 1, eventBurst + 2, eventBurst + 2} {
				synctest.Wait()
				if c := q.Counts(); c.Sent != want || c.Dropped != 0 {
					t.Errorf("counts are %+v, want %d sent", c, want)
				}
				time.Sleep(eventEvery + time.Second)
			}
		})
	})
	t.Run("in how many wait", func(t *testing.T) {
		tell(t, func(t *testing.T, q *telling) {
			q.settle(false)
			for i := range maxWaitingEvents + 10 {
				s := broken
				s.Name = fmt.Sprint("check-", i)
				q.Transition(fine, s, "c")
			}
			if c := q.Counts(); c.Dropped != 10 || len(q.waiting) != maxWaitingEvents {
				t.Errorf("counts are %+v, %d wait", c, len(q.waiting))
			}
		})
	})
	t.Run("by an API server that refuses them", func(t *testing.T) {
		tell(t, func(t *testing.T, q *telling) {
			q.store.set(apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no right")))
			q.Transition(fine, broken, "c")
			time.Sleep(time.Hour)
			if c := q.Counts(); c.Dropped != 1 || c.Sent != 0 {
				t.Errorf("counts are %+v", c)
			}
		})
	})
}

func TestAnEventThatExpiredIsMadeAnew(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		q.Transition(fine, broken, "c")
		synctest.Wait()
		q.Transition(broken, fine, "c")
		synctest.Wait()
		q.store.mu.Lock()
		q.store.stored = nil
		q.store.mu.Unlock()
		q.Transition(fine, broken, "c")
		synctest.Wait()
		if got := q.store.say(); got != "Warning Broken" {
			t.Errorf("got %s", got)
		}
	})
}

func TestAConflictIsToldWithoutTheLeaseAndSeldom(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		q.settle(false)
		q.Transition(fine, broken, "c")
		for range 25 {
			q.Conflict("lease is held by n_2", time.Now())
			time.Sleep(time.Minute)
		}
		if got := q.store.say(); got != "Warning IdentityConflict x3" {
			t.Errorf("got %s", got)
		}
	})
}
