package gates

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// server is an API server with config maps, broken on demand.
type server struct {
	mu      sync.Mutex
	fault   error // of every request; guarded by mu
	hangs   bool  // requests are never answered; guarded by mu
	names   []string
	finds   int
	watches []*watch.FakeWatcher
}

func (s *server) find(context.Context) (cache.ListerWatcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for s.hangs {
				s.mu.Unlock()
				pause(ctx, time.Second)
				s.mu.Lock()
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
			}
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for _, name := range s.names {
				list.Items = append(list.Items, configMap(name))
			}
			return list, s.fault
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if o.SendInitialEvents != nil {
				return nil, errors.New("this server has no streaming lists")
			}
			if s.fault != nil {
				return nil, s.fault
			}
			w := watch.NewFake()
			s.watches = append(s.watches, w)
			return w, nil
		},
	}, nil
}

func configMap(name string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
}

// answer makes every request fail and ends the watches; nil mends it.
func (s *server) answer(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
	for _, w := range s.watches {
		w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
	}
	s.watches = nil
}

// told counts what gates say.
type told struct {
	mu    sync.Mutex
	nodes []string
	rules [][]types.UID
}

func (o *told) options() Options {
	return Options{
		NodeChanged:  func(node string) { o.mu.Lock(); defer o.mu.Unlock(); o.nodes = append(o.nodes, node) },
		RulesChanged: func(rules []types.UID) { o.mu.Lock(); defer o.mu.Unlock(); o.rules = append(o.rules, rules) },
		Reworded:     func() {},
		Log:          logr.Discard(),
	}
}

// following starts a feed that keeps the names of config maps.
func following(t *testing.T, s *server) (*feed[string], *told) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	told := &told{}
	w := &watched{o: told.options(), rules: []types.UID{"r"}}
	f := &feed[string]{
		find: s.find, gate: w, log: logr.Discard(),
		keep:    func(o metav1.Object) (string, bool) { return o.GetName(), o.GetName() != "dull" },
		same:    func(a, b string) bool { return a == b },
		changed: func(name string, _, _ *string) { w.news.node(name) },
	}
	go func() { defer close(done); f.run(ctx) }()
	synctest.Wait()
	return f, told
}

// times is how often rules were told.
func (o *told) times() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rules)
}

func (f *feed[V]) state() feedState {
	f.gate.mu.RLock()
	defer f.gate.mu.RUnlock()
	return f.feedState
}

// TestFaults runs in fake time: what an error of the API server does to what is known.
func TestFaults(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no right"))
	broken := apierrors.NewInternalError(errors.New("a conversion webhook is away"))
	unreachable := errors.New("connect: connection refused")
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")

	for _, tc := range []struct {
		name  string
		fault error
		// first is whether the fault is there from the beginning on.
		first bool
		// counts is whether the fault counts, right away and after a while.
		counts, later bool
	}{
		{name: "what may not be read is unknown at once", fault: forbidden, first: true, counts: true, later: true},
		{name: "so is what cannot be read", fault: broken, first: true, counts: true, later: true},
		{name: "so is what nobody answers about", fault: unreachable, first: true, counts: true, later: true},
		{name: "what was known stands for a while when the right is taken away, and no longer", fault: forbidden, later: true},
		{name: "what was known stands for a while when the server fails, and no longer", fault: broken, later: true},
		{name: "what was known stands for a while when the kind is gone, and no longer", fault: notFound, later: true},
		{name: "what was known stands while the server does not answer", fault: unreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{names: []string{"a"}}
				if tc.first {
					s.answer(tc.fault)
				}
				f, told := following(t, s)
				if !tc.first {
					if got := f.state(); got != (feedState{read: true}) {
						t.Fatalf("after the first list: %+v", got)
					}
					s.answer(tc.fault)
				}
				time.Sleep(endurance / 2)
				if got := f.state(); (got.fault != "") != tc.counts || !got.settled() {
					t.Errorf("soon: %+v", got)
				}
				time.Sleep(endurance + 2*lastPause)
				if got := f.state(); (got.fault != "") != tc.later {
					t.Errorf("later: %+v", got)
				}
				s.answer(nil)
				time.Sleep(2 * lastPause)
				synctest.Wait()
				if got := f.state(); got != (feedState{read: true}) || len(f.rows) != 1 {
					t.Errorf("mended: %+v, rows %v", got, f.rows)
				}
				// Known, then in doubt and known again where that happened; nothing is said twice.
				want := 1
				if tc.later {
					want = 2
				}
				if !tc.first && tc.later {
					want = 3
				}
				if len(told.rules) != want {
					t.Errorf("rules were told of %d times, want %d", len(told.rules), want)
				}
			})
		})
	}
}

// TestNobodyAnswers runs in fake time: what was never read is neither ready nor not, for a while, and then unknown until it
// is read.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{names: []string{"a"}, hangs: true}
		f, told := following(t, s)
		for _, step := range []struct {
			after time.Duration
			is    feedState
			tells int
		}{
			{after: patience - time.Second},
			{after: time.Second, is: feedState{fault: "the API server has not answered for 30s"}, tells: 1},
			{after: time.Hour, is: feedState{fault: "the API server has not answered for 30s"}, tells: 1},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := f.state(); got != step.is || told.times() != step.tells {
				t.Errorf("%+v, and rules were told of %d times; want %+v and %d", got, told.times(), step.is, step.tells)
			}
		}
		s.mu.Lock()
		s.hangs = false
		s.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := f.state(); got != (feedState{read: true}) || told.times() != 2 {
			t.Errorf("answered: %+v, and rules were told of %d times", got, told.times())
		}
	})
}

func TestKindIsLookedUpAgainWhenItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		following(t, s)
		s.answer(apierrors.NewNotFound(schema.GroupResource{}, ""))
		time.Sleep(time.Minute)
		s.answer(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.finds < 2 || s.finds > 12 {
			t.Errorf("looked up %d times", s.finds)
		}
	})
}

func TestFeedTellsOfWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{names: []string{"a", "b", "dull"}}
		f, told := following(t, s)
		watch := s.watches[0]
		for _, step := range []struct {
			name  string
			do    func()
			rows  []string
			nodes []string
		}{
			{name: "one comes", do: func() { c := configMap("c"); watch.Add(&c) }, rows: []string{"a", "b", "c"}, nodes: []string{"c"}},
			{name: "one changes, and nothing that is kept of it", do: func() { c := configMap("a"); watch.Modify(&c) }, rows: []string{"a", "b", "c"}},
			{name: "one comes that is of no interest", do: func() { c := configMap("dull"); watch.Add(&c) }, rows: []string{"a", "b", "c"}},
			{name: "one goes", do: func() { c := configMap("b"); watch.Delete(&c) }, rows: []string{"a", "c"}, nodes: []string{"b"}},
			{name: "the list is read anew, with one more and one less", do: func() {
				s.names = []string{"a", "d"}
				s.answer(nil)
				time.Sleep(2 * lastPause)
			}, rows: []string{"a", "d"}, nodes: []string{"c", "d"}},
		} {
			told.nodes = nil
			step.do()
			synctest.Wait()
			var rows []string
			for name := range f.rows {
				rows = append(rows, name)
			}
			slices.Sort(rows)
			slices.Sort(told.nodes)
			if !slices.Equal(rows, step.rows) || !slices.Equal(told.nodes, step.nodes) {
				t.Errorf("%s: rows %v, told of %v; want %v and %v", step.name, rows, told.nodes, step.rows, step.nodes)
			}
		}
	})
}
