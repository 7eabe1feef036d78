package heartbeat

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// memoryAPI keeps one Node and one Lease in memory, with the API server's rules about versions, so that hours can be
// tested under fake time. The real API server has its own tests, in internal/agent.
type memoryAPI struct {
	mu      sync.Mutex
	nodeUID types.UID
	lease   *coordinationv1.Lease
	version int
	hangs   bool // every call runs into its deadline
	loses   bool // writes are stored but their answers are lost
	// leaseFault is answered to every call about the Lease; nil: there is none.
	leaseFault error
	faults     []time.Time // when it was
	writes     []write
	reads      int
	redialed   int
}

type write struct {
	holder string
	at     time.Time
}

const callTimeout = 5 * time.Second

func (a *memoryAPI) call(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a.mu.Lock()
	hangs := a.hangs
	a.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	return f()
}

func (a *memoryAPI) spoil() error {
	a.faults = append(a.faults, time.Now())
	return a.leaseFault
}

func missing(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (a *memoryAPI) Node(ctx context.Context, name string) (n kubeclient.Node, err error) {
	err = a.call(ctx, func() error {
		a.reads++
		if a.nodeUID == "" {
			return missing("nodes", name)
		}
		n = kubeclient.Node{Name: name, UID: a.nodeUID}
		return nil
	})
	return n, err
}

func (a *memoryAPI) Lease(ctx context.Context, _, name string) (l *coordinationv1.Lease, err error) {
	err = a.call(ctx, func() error {
		a.reads++
		if a.leaseFault != nil {
			return a.spoil()
		}
		if a.lease == nil {
			return missing("leases", name)
		}
		l = a.lease.DeepCopy()
		return nil
	})
	return l, err
}

func (a *memoryAPI) store(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	a.version++
	uid := types.UID("lease-" + strconv.Itoa(a.version))
	if a.lease != nil {
		uid = a.lease.UID
	}
	a.lease = lease.DeepCopy()
	a.lease.UID = uid
	a.lease.ResourceVersion = strconv.Itoa(a.version)
	a.writes = append(a.writes, write{*lease.Spec.HolderIdentity, time.Now()})
	if a.loses {
		return nil, context.DeadlineExceeded
	}
	return a.lease.DeepCopy(), nil
}

func (a *memoryAPI) CreateLease(ctx context.Context, lease *coordinationv1.Lease, _ kubeclient.ApplyOptions) (stored *coordinationv1.Lease, err error) {
	err = a.call(ctx, func() (err error) {
		if a.leaseFault != nil {
			return a.spoil()
		}
		if a.lease != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, lease.Name)
		}
		stored, err = a.store(lease)
		return err
	})
	return stored, err
}

func (a *memoryAPI) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (stored *coordinationv1.Lease, err error) {
	err = a.call(ctx, func() (err error) {
		switch {
		case a.leaseFault != nil:
			return a.spoil()
		case a.lease == nil: // made anew, as by the real one
		case a.lease.ResourceVersion != lease.ResourceVersion:
			return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, lease.Name, nil)
		}
		stored, err = a.store(lease)
		return err
	})
	return stored, err
}

func (a *memoryAPI) DropConnections() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.redialed++
}

func (a *memoryAPI) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// since counts the writes of a holder after a moment.
func (a *memoryAPI) since(holder string, t time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.writes {
		if w.holder == holder && w.at.After(t) {
			n++
		}
	}
	return n
}

// body is one agent process around a heart.
type body struct {
	*Heart
	kill      context.CancelFunc
	mu        sync.Mutex
	reapplied []string
	progress  uint64
	stuck     bool
}

func (b *body) reasons() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reapplied)
}

func (b *body) stick(stuck bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = stuck
}

func live(t *testing.T, api API, holder, stateDir string) *body {
	b := &body{}
	b.Heart = New(api, Options{
		Namespace: "leases", Node: "n", Holder: holder, StateDir: stateDir,
		Interval: 10 * time.Second, LeaseDuration: 40 * time.Second, StallAfter: 30 * time.Second,
		Progress: func() uint64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.stuck {
				b.progress++
			}
			return b.progress
		},
		Reapply: func(why string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reapplied = append(b.reapplied, why)
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	b.kill = func() { cancel(); <-done }
	return b
}

func wantState(t *testing.T, b *body, want State) {
	t.Helper()
	synctest.Wait()
	if s := b.Status(); s.State != want {
		t.Fatalf("state is %s (%s), want %s", s.State, s.Detail, want)
	}
}

func TestBeatsAreSteadyAndReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		b := live(t, api, "n_a", "")
		time.Sleep(10 * time.Millisecond)
		wantState(t, b, Holding)
		if n := api.since("n_a", time.Time{}); n == 0 {
			t.Fatalf("%d beats right after the start, want one at once", n)
		}
		time.Sleep(time.Hour)
		b.kill()
		if api.reads != 2 {
			t.Errorf("%d reads in an hour, want one of the node and one of the lease", api.reads)
		}
		for i, w := range api.writes[1:] {
			gap := w.at.Sub(api.writes[i].at)
			if i == 0 && gap > 10*time.Second+10*time.Millisecond {
				t.Errorf("second beat after %s, want it within one interval", gap)
			}
			if i > 0 && (gap < 10*time.Second || gap > 10*time.Second+400*time.Millisecond+10*time.Millisecond) {
				t.Errorf("beat %d after %s, want 10 s and at most 4 %% more", i+1, gap)
			}
		}
		if got := b.reasons(); len(got) != 1 {
			t.Errorf("everything was applied again for %q, want the first beat alone", got)
		}
	})
}

func TestAHungSchedulerLooksDeadAndAWokenOneAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		b := live(t, api, "n_a", "")
		time.Sleep(time.Minute)
		b.stick(true)
		time.Sleep(45 * time.Second)
		stuck := time.Now()
		time.Sleep(41 * time.Second)
		wantState(t, b, Stalled)
		if n := api.since("n_a", stuck); n != 0 {
			t.Errorf("%d beats although nothing moved", n)
		}
		if b.Holds() {
			t.Error("still speaks for the node a lease duration after its last beat")
		}
		b.stick(false)
		time.Sleep(11 * time.Second)
		wantState(t, b, Holding)
		if !b.Holds() || len(b.reasons()) != 2 {
			t.Errorf("holds: %v, applied again for %q; want it to hold and a second reason", b.Holds(), b.reasons())
		}
		b.kill()
	})
}

func TestTheLeaseWaitsForTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{}
		b := live(t, api, "n_a", "")
		time.Sleep(time.Hour)
		wantState(t, b, WaitingForNode)
		api.change(func() {
			if api.lease != nil || b.Holds() {
				t.Error("there is a lease without a node")
			}
			if api.reads > 370 {
				t.Errorf("%d reads in an hour of waiting, want one in 10 s", api.reads)
			}
			api.nodeUID = "uid-1"
		})
		time.Sleep(11 * time.Second)
		wantState(t, b, Holding)
		b.kill()
	})
}

func TestAnOutageOfTheAPIServer(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lasts   time.Duration
		reapply int
	}{
		{name: "shorter than the lease duration is a hiccup", lasts: 16 * time.Second, reapply: 1},
		{name: "longer than it has everything applied again", lasts: 5 * time.Minute, reapply: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &memoryAPI{nodeUID: "uid-1"}
				b := live(t, api, "n_a", "")
				time.Sleep(time.Minute)
				api.change(func() { api.hangs = true })
				time.Sleep(tc.lasts)
				api.change(func() {
					if api.redialed == 0 {
						t.Error("the connection that hangs was kept")
					}
					api.hangs = false
				})
				time.Sleep(20 * time.Second) // a call that hangs, and a whole wait after it
				wantState(t, b, Holding)
				if got := b.reasons(); len(got) != tc.reapply {
					t.Errorf("everything was applied for %q, want %d reasons", got, tc.reapply)
				}
				b.kill()
			})
		})
	}
}

func TestALostAnswerIsNotTakenForAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		b := live(t, api, "n_a", "")
		time.Sleep(time.Minute)
		api.change(func() { api.loses = true })
		time.Sleep(13 * time.Second) // a whole wait, and the tries of a beat
		wantState(t, b, Failing)
		api.change(func() { api.loses = false })
		time.Sleep(13 * time.Second)
		wantState(t, b, Holding)
		b.kill()
	})
}

func TestADeletedNode(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(api *memoryAPI, b *body)
	}{
		{name: "that comes back before the lease is collected, when somebody doubts it", do: func(api *memoryAPI, b *body) {
			api.change(func() { api.nodeUID = "uid-2" })
			b.DoubtNode()
		}},
		{name: "whose lease is collected after it came back", do: func(api *memoryAPI, _ *body) {
			api.change(func() { api.nodeUID, api.lease = "uid-2", nil })
		}},
		{name: "that comes back late", do: func(api *memoryAPI, b *body) {
			api.change(func() { api.nodeUID, api.lease = "", nil })
			time.Sleep(time.Minute)
			if s := b.Status().State; s != WaitingForNode || b.Holds() {
				panic("holds a lease of no node: " + s)
			}
			api.change(func() { api.nodeUID = "uid-2" })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &memoryAPI{nodeUID: "uid-1"}
				b := live(t, api, "n_a", "")
				time.Sleep(time.Minute)
				tc.do(api, b)
				time.Sleep(21 * time.Second)
				wantState(t, b, Holding)
				b.kill()
				if o := api.lease.OwnerReferences; len(o) != 1 || o[0].UID != "uid-2" {
					t.Errorf("owners of the lease are %+v, want the new node", o)
				}
				if got := b.reasons(); len(got) != 2 || b.Status().NodeUID != "uid-2" {
					t.Errorf("applied again for %q, node is %s", got, b.Status().NodeUID)
				}
			})
		})
	}
}

func TestOneOfTwoAgentsWinsAndTheOtherIsSilentUntilItDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		first := live(t, api, "n_first", t.TempDir())
		time.Sleep(time.Minute)
		second := live(t, api, "n_second", t.TempDir())
		time.Sleep(time.Hour)
		wantState(t, first, Holding)
		wantState(t, second, IdentityConflict)
		if n := api.since("n_second", time.Time{}); n != 0 || second.Holds() || len(second.reasons()) != 0 {
			t.Fatalf("the second wrote the lease %d times, holds: %v, applied for %q", n, second.Holds(), second.reasons())
		}
		first.kill()
		killed := time.Now()
		time.Sleep(19 * time.Second)
		wantState(t, second, IdentityConflict)
		time.Sleep(15 * time.Second) // 30 s since the last beat, and its own next look: before anybody calls the node silent
		wantState(t, second, Holding)
		if len(second.reasons()) != 1 || api.since("n_second", killed) == 0 {
			t.Errorf("the second applied for %q", second.reasons())
		}
		second.kill()
	})
}

func TestARestartedAgentTakesOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := &memoryAPI{nodeUID: "uid-1"}, t.TempDir()
		for _, holder := range []string{"n_1", "n_2", "n_3"} {
			b := live(t, api, holder, dir)
			time.Sleep(10 * time.Millisecond)
			wantState(t, b, Holding)
			b.kill()
		}
		if n := *api.lease.Spec.LeaseTransitions; n != 2 {
			t.Errorf("lease changed hands %d times, want 2", n)
		}
	})
}

func TestTheSameWithAnAnswerLostAtTheDeathOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := &memoryAPI{nodeUID: "uid-1", loses: true}, t.TempDir()
		for _, holder := range []string{"n_1", "n_2"} {
			b := live(t, api, holder, dir)
			time.Sleep(2 * time.Millisecond) // stored, but not answered
			b.kill()
		}
		api.loses = false
		b := live(t, api, "n_3", dir)
		time.Sleep(10 * time.Millisecond)
		wantState(t, b, Holding)
		b.kill()
	})
}
