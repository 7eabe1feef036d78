package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// The tests run in a bubble of fake time. What the real API server and the real informers do is tested in
// internal/controller; here they are slow, behind or broken on demand.

// feed is an informer whose events a test makes.
type feed struct{ handler cache.ResourceEventHandler }

func (f *feed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handler = h
	return f, nil
}
func (f *feed) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

func (f *feed) HasSynced() bool { return true }
func (f *feed) HasSyncedChecker() cache.DoneChecker {
	panic("nobody waits")
}

// server holds leases as the API server would, for live reads and for the canary.
type server struct {
	client.Client
	mu      sync.Mutex
	leases  map[string]*coordinationv1.Lease // guarded by mu
	fault   error                            // of every request; guarded by mu
	noList  error                            // guarded by mu
	hangs   bool                             // guarded by mu
	reads   int                              // of agents' leases; guarded by mu
	version int                              // guarded by mu
	// watch shows what is written to the informer, but while it is stalled. Guarded by mu.
	watch   func(*coordinationv1.Lease)
	stalled bool
}

// answer waits or fails as a request has to.
func (s *server) answer(ctx context.Context) error {
	s.mu.Lock()
	fault, hangs := s.fault, s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return fault
}

func (s *server) put(lease *coordinationv1.Lease) {
	s.mu.Lock()
	s.version++
	lease.ResourceVersion = fmt.Sprint(s.version)
	s.leases[lease.Name] = lease.DeepCopy()
	show := s.watch
	if s.stalled {
		show = nil
	}
	s.mu.Unlock()
	if show != nil {
		show(lease.DeepCopy())
	}
}

func (s *server) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	s.put(obj.(*coordinationv1.Lease))
	return nil
}

func (s *server) Update(ctx context.Context, obj client.Object, _ ...client.UpdateOption) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	had := s.leases[obj.GetName()]
	s.mu.Unlock()
	if had == nil || had.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, obj.GetName(), errors.New("another version"))
	}
	s.put(obj.(*coordinationv1.Lease))
	return nil
}

func (s *server) List(_ context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noList
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	if key.Name != fettlev1alpha1.CanaryLease {
		s.reads++
	}
	s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leases[key.Name]
	if lease == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, key.Name)
	}
	lease.DeepCopyInto(obj.(*coordinationv1.Lease))
	return nil
}

type rig struct {
	*testing.T
	*Watch
	leases, hosts feed
	server        *server
	serial, turn  int

	mu      sync.Mutex
	changes []string    // guarded by mu
	silent  []time.Time // when agents were called silent; guarded by mu
}

func newServer() *server { return &server{leases: map[string]*coordinationv1.Lease{}} }

// inBubble runs a test with a Watch that has started, in fake time.
func inBubble(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) { lead(t, newServer(), test) })
}

// lead runs a Watch over a server for as long as the test takes. Calls in a row are leaders in a row.
func lead(t *testing.T, s *server, test func(*rig), changes ...func(*Options)) {
	r := &rig{T: t, server: s}
	o := Options{
		Leases: &r.leases, Hosts: &r.hosts, Live: s, Client: s,
		Limits: liveness.Limits{Grace: 50 * time.Second, StartupGrace: 2 * time.Minute},
		Policy: fleet.Policy{Limits: fleet.DefaultLimits()},
		Changed: func(node string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			state := r.Watch.Verdict(node, types.UID("host-"+node)).State
			r.changes = append(r.changes, node+" "+string(state))
			if state == liveness.Silent {
				r.silent = append(r.silent, time.Now())
			}
		},
		Log: logr.Discard(),
	}
	for _, change := range changes {
		change(&o)
	}
	r.Watch = New(o)
	ctx, stop := context.WithCancel(t.Context())
	s.mu.Lock()
	s.watch = func(lease *coordinationv1.Lease) { r.leases.handler.OnAdd(lease, false) }
	s.mu.Unlock()
	done := make(chan error)
	go func() { done <- r.Start(ctx) }()
	r.pass(1100 * time.Millisecond) // until it follows Hosts, too, and has seen its canary
	test(r)
	s.mu.Lock()
	s.watch = nil
	s.mu.Unlock()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// renew renews a lease on the server; show lets the informer see it.
func (r *rig) renew(node string) *coordinationv1.Lease {
	r.serial++
	renewed := metav1.NewMicroTime(time.Now().Add(time.Duration(r.serial) * time.Microsecond))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(40)), RenewTime: &renewed},
	}
	r.server.mu.Lock()
	r.server.leases[node] = lease
	r.server.mu.Unlock()
	return lease
}

func (r *rig) show(lease *coordinationv1.Lease) {
	r.leases.handler.OnAdd(lease, false)
	synctest.Wait()
}

func (r *rig) showHost(node string, reported bool) {
	host := &fettlev1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("host-" + node)}}
	if reported {
		host.Status.Agent = &fettlev1alpha1.HostAgent{}
	}
	r.hosts.handler.OnAdd(host, false)
	synctest.Wait()
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) is(node string, want liveness.State) {
	r.Helper()
	if got := r.Verdict(node, types.UID("host-"+node)).State; got != want {
		r.Errorf("%s is %s, want %s", node, got, want)
	}
}

func (r *rig) reads() int {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.server.reads
}

func (r *rig) fail(err error) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.server.fault = err
}

func TestSilenceIsConfirmedLive(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.showHost("a", true)
		r.show(r.renew("a"))
		r.is("a", liveness.Alive)
		r.pass(50 * time.Second)
		r.is("a", liveness.Alive)
		if reads := r.reads(); reads != 0 {
			t.Errorf("%d live reads of an agent that is alive", reads)
		}
		r.pass(time.Second)
		r.is("a", liveness.Silent)
		r.pass(time.Hour)
		if reads := r.reads(); reads != 1 {
			t.Errorf("%d live reads for one silence", reads)
		}
		r.show(r.renew("a"))
		r.is("a", liveness.Alive)
		if want := []string{"a Starting", "a Alive", "a Silent", "a Alive"}; fmt.Sprint(r.changes) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", r.changes, want)
		}
	})
}

func TestABlindControllerMakesNobodySilent(t *testing.T) {
	for name, blind := range map[string]func(*rig, bool){
		"the API server refuses": func(r *rig, yes bool) {
			if r.fail(nil); yes {
				r.fail(errors.New("refused"))
			}
		},
		"the API server does not answer": func(r *rig, yes bool) {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			r.server.hangs = yes
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.showHost("a", true)
				r.show(r.renew("a"))
				blind(r, true)
				r.pass(10 * time.Minute)
				r.is("a", liveness.Overdue)
				blind(r, false)
				r.pass(2*time.Minute + 45*time.Second) // the cooldown, and then nearly a grace period
				r.is("a", liveness.Alive)              // timed anew
				r.pass(15 * time.Second)
				r.is("a", liveness.Silent)
			})
		})
	}
}

func TestStartup(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.showHost("bare", false)
		r.showHost("known", true) // by a controller before this one
		r.is("bare", liveness.Starting)
		r.pass(51 * time.Second)
		r.is("bare", liveness.Starting)
		r.is("known", liveness.Silent)
		r.pass(70 * time.Second)
		r.is("bare", liveness.NeverReported)
		r.show(r.renew("bare"))
		r.is("bare", liveness.Alive)
	})
}

func TestALeaseMayAskForMoreThanTheGracePeriod(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.showHost("a", true)
		lease := r.renew("a")
		lease.Spec.LeaseDurationSeconds = new(int32(100))
		r.show(lease)
		r.pass(125 * time.Second)
		r.is("a", liveness.Alive)
		r.pass(time.Second)
		r.is("a", liveness.Silent)
	})
}

func TestALeaseThatTellsItsIntervalGetsThatBesidesItsDuration(t *testing.T) {
	for interval, silence := range map[string]time.Duration{
		"39s": 79 * time.Second, "10s": 50 * time.Second, "": 50 * time.Second, "soon": 50 * time.Second, "-5s": 50 * time.Second, "3h": 50 * time.Second,
	} {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40))}}
		lease.Annotations = map[string]string{fettlev1alpha1.HeartbeatIntervalAnnotation: interval}
		if got := askedBy(lease); got != silence {
			t.Errorf("interval %q: a silence of %s is allowed, want %s", interval, got, silence)
		}
	}
}

func TestAHostThatGoesIsForgotten(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.showHost("a", true)
		lease := r.renew("a")
		r.show(lease)
		r.hosts.handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: &fettlev1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
		synctest.Wait()
		r.pass(time.Hour)
		r.is("a", liveness.Starting)
		r.leases.handler.OnDelete(lease)
		synctest.Wait()
		if n := len(r.agents); n != 0 {
			t.Errorf("%d agents are remembered", n)
		}
		r.showHost("a", false)
		r.is("a", liveness.Starting)
	})
}

func TestThousandsOfAgentsOneSilence(t *testing.T) {
	inBubble(t, func(r *rig) {
		const agents = 3000
		node := func(i int) string { return fmt.Sprintf("n%04d", i) }
		for i := range agents {
			r.showHost(node(i), true)
			r.show(r.renew(node(i)))
		}
		r.changes = nil
		for range 6 {
			r.pass(10 * time.Second)
			for i := range agents {
				if i != 7 {
					r.show(r.renew(node(i)))
				}
			}
		}
		if fmt.Sprint(r.changes) != "[n0007 Silent]" {
			t.Errorf("told %v", r.changes)
		}
		if counts := r.Counts(); counts[liveness.Alive] != agents-1 || counts[liveness.Silent] != 1 {
			t.Errorf("counts %v", counts)
		}
	})
}

func TestProcess(t *testing.T) {
	inBubble(t, func(r *rig) {
		if p := r.Process("a", "host-a"); p != (Process{}) {
			t.Errorf("of an agent never seen: %+v", p)
		}
		met := time.Now()
		r.show(r.renew("a"))
		r.showHost("a", true)
		if p, want := r.Process("a", "host-a"), (Process{Holder: "a", Late: met.Add(12500 * time.Millisecond)}); p.Holder != want.Holder || p.Heard || !p.Late.Equal(want.Late) {
			t.Errorf("before a beat: %+v, want %+v", p, want)
		}
		r.pass(time.Second)
		lease := r.renew("a")
		lease.Spec.HolderIdentity = new("b")
		r.show(lease)
		if p := r.Process("a", "host-a"); p.Holder != "b" || !p.Heard {
			t.Errorf("after a beat of another: %+v", p)
		}
		if p := r.Process("a", "host-before"); p != (Process{}) {
			t.Errorf("for another Host: %+v", p)
		}
	})
}
