package heartbeat

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fettle-dev/fettle/internal/statefile"
)

var (
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "n", errors.New("no right"))
	crowded   = apierrors.NewTooManyRequests("too many", 1)
	refusal   = &url.Error{Op: "Put", URL: "https://api", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
)

func TestImpairment(t *testing.T) {
	const interval = 10 * time.Second
	type failure struct {
		kind    kind
		overdue time.Duration
		answers bool // to the question whether the API server answers at all
	}
	for _, tc := range []struct {
		name     string
		failures []failure
		want     bool
	}{
		{name: "a first refusal, however late, may be the first word of a server that comes back",
			failures: []failure{{refused, time.Hour, true}}},
		{name: "the second refusal in a row is one of the lease",
			failures: []failure{{refused, interval, true}, {refused, 2 * interval, true}}, want: true},
		{name: "but not before two intervals are over",
			failures: []failure{{refused, interval / 2, true}, {refused, interval + 5*time.Second, true}}},
		{name: "a server that answers nothing is away, however long",
			failures: []failure{{unreachable, time.Minute, false}, {unreachable, time.Hour, false}, {unreachable, 2 * time.Hour, false}}},
		{name: "leases that time out while nodes do not",
			failures: []failure{{unreachable, interval, true}, {unreachable, 2 * interval, true}}, want: true},
		{name: "the answer must have come before the failure",
			failures: []failure{{unreachable, time.Minute, false}, {unreachable, 2 * time.Minute, true}}},
		{name: "a server that throttles answers", failures: []failure{{throttled, interval, true}, {throttled, 2 * interval, true}}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var i impairment
			got := false
			for _, f := range tc.failures {
				got = i.failed(f.kind, f.overdue, interval, func() bool { return f.answers })
			}
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestALeaseThatCannotBeWrittenIsToldFromAServerThatIsAway(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault error
		hangs bool
		want  bool
	}{
		{name: "no right to leases", fault: forbidden, want: true},
		{name: "throttled leases", fault: crowded, want: true},
		{name: "leases that are not answered", fault: context.DeadlineExceeded, want: true},
		{name: "a server that hangs", hangs: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &memoryAPI{nodeUID: "uid-1"}
				b := live(t, api, "n_a", "")
				time.Sleep(time.Minute)
				api.change(func() { api.leaseFault, api.hangs = tc.fault, tc.hangs })
				time.Sleep(45 * time.Second)
				wantState(t, b, Failing)
				first := b.Status()
				if first.Impaired != tc.want || first.Fault == "" {
					t.Errorf("status is %+v, want impaired %v", first, tc.want)
				}
				time.Sleep(time.Minute)
				if s := b.Status(); s.Fault != first.Fault {
					t.Errorf("the fault changed its words from %q to %q", first.Fault, s.Fault)
				}
				api.change(func() { api.leaseFault, api.hangs = nil, false })
				time.Sleep(20 * time.Second)
				wantState(t, b, Holding)
				if b.Status().Impaired {
					t.Error("still impaired")
				}
				b.kill()
			})
		})
	}
}

func TestAServerThatComesBackWithARefusalIsNotALeaseAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		b := live(t, api, "n_a", "")
		time.Sleep(time.Minute)
		api.change(func() { api.hangs = true })
		time.Sleep(5 * time.Minute)
		api.change(func() { api.hangs, api.leaseFault = false, forbidden })
		for range 9 {
			time.Sleep(time.Second)
			if b.Status().Impaired {
				t.Fatal("impaired by one refusal after an outage")
			}
		}
		api.change(func() { api.leaseFault = nil })
		time.Sleep(20 * time.Second)
		wantState(t, b, Holding)
		b.kill()
	})
}

func TestAThrottledBeatIsTriedAgainWhenTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &memoryAPI{nodeUID: "uid-1"}
		b := live(t, api, "n_a", "")
		time.Sleep(time.Minute)
		api.change(func() { api.leaseFault = apierrors.NewTooManyRequests("too many", 3) })
		before := len(api.faults)
		for spoiled := false; !spoiled; api.change(func() { spoiled = len(api.faults) > before }) {
			time.Sleep(10 * time.Millisecond)
		}
		api.change(func() { api.leaseFault = nil })
		throttled := api.faults[before]
		time.Sleep(4 * time.Second)
		wantState(t, b, Holding)
		for _, w := range api.writes {
			if after := w.at.Sub(throttled); after > 0 && after < 3*time.Second {
				t.Errorf("a beat %s after an answer that asked for 3 s", after)
			}
		}
		if n := api.since("n_a", throttled); n != 1 {
			t.Errorf("%d beats after the 3 s that were asked for", n)
		}
		b.kill()
	})
}

func TestFaultsAreSaidInWordsThatDoNotChange(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{name: "a refusal in its own words", err: forbidden, want: `leases "n" is forbidden: no right`},
		{name: "a connection without its ports", err: refusal, want: "the API server cannot be reached"},
		{name: "a deadline", err: context.DeadlineExceeded, want: "the API server does not answer in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := faultOf(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestARenamedNodeHasNoPast : an identity remembered under another node's name is no predecessor under this one.
func TestARenamedNodeHasNoPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := remember(dir, memory{Node: "old-name", Confirmed: "x_1", Attempted: []string{"x_2"}}); err != nil {
			t.Fatal(err)
		}
		holder, at := "x_1", metav1.NowMicro()
		api := &memoryAPI{nodeUID: "uid-1", lease: leaseOf(holder, at.Time)}
		b := live(t, api, "n_a", dir)
		time.Sleep(time.Second)
		wantState(t, b, IdentityConflict)
		time.Sleep(time.Minute)
		wantState(t, b, Holding)
		b.kill()
		if got, err := Predecessors(dir, "n"); err != nil || len(got) != 1 || got[0] != "n_a" {
			t.Errorf("remembered of the new name: %v, %v", got, err)
		}
		if got, err := Predecessors(dir, "old-name"); err != nil || len(got) != 0 {
			t.Errorf("remembered of the old name: %v, %v", got, err)
		}
	})
}

func TestMemoryOfAgentsThatDidNotKeepTheNameIsBelieved(t *testing.T) {
	dir := t.TempDir()
	old := struct {
		Confirmed string `json:"confirmed"`
	}{"n_1"}
	if err := statefile.Write(memoryPath(dir), memoryFormat, old); err != nil {
		t.Fatal(err)
	}
	if got, err := Predecessors(dir, "n"); err != nil || len(got) != 1 || got[0] != "n_1" {
		t.Errorf("got %v, %v", got, err)
	}
}
