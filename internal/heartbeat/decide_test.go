package heartbeat

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(40), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at,
	}}
}

func TestDecide(t *testing.T) {
	self := Self{Holder: "n_new", Predecessors: []string{"n_older", "n_old"}}
	saw := func(holder string, renewed, since time.Time) Sighting {
		return Sighting{Holder: holder, RenewTime: metav1.NewMicroTime(renewed), Since: since}
	}
	for _, tc := range []struct {
		name  string
		lease *coordinationv1.Lease
		prev  Sighting
		after time.Duration // since start
		want  Action
		since time.Duration // of the sighting that is kept, since start; -1: none is
	}{
		{name: "no lease is made", want: Create, since: -1},
		{name: "our own is renewed, however old it is", lease: leaseOf("n_new", start.Add(-time.Hour)), want: Renew, since: -1},
		{name: "nobody's is taken", lease: leaseOf("", start), want: TakeOver, since: -1},
		{name: "our predecessor's is taken at once", lease: leaseOf("n_old", start), want: TakeOver, since: -1},
		{name: "so is that of a predecessor further back", lease: leaseOf("n_older", start), want: TakeOver, since: -1},
		{
			name:  "a foreign one is yielded to at first sight, even when its renewTime is long past",
			lease: leaseOf("n_foreign", start.Add(-time.Hour)), want: Yield, since: 0,
		},
		{
			name:  "a foreign one is yielded to for its duration less one interval of silence",
			lease: leaseOf("n_foreign", start), prev: saw("n_foreign", start, start), after: 30 * time.Second,
			want: Yield, since: 0,
		},
		{
			name:  "a foreign one is taken after it",
			lease: leaseOf("n_foreign", start), prev: saw("n_foreign", start, start), after: 30*time.Second + 1,
			want: TakeOver, since: 0,
		},
		{
			name:  "a renewed foreign one starts over",
			lease: leaseOf("n_foreign", start.Add(time.Second)), prev: saw("n_foreign", start, start), after: time.Minute,
			want: Yield, since: time.Minute,
		},
		{
			name:  "also when its clock stepped back",
			lease: leaseOf("n_foreign", start.Add(-time.Hour)), prev: saw("n_foreign", start, start), after: time.Minute,
			want: Yield, since: time.Minute,
		},
		{
			name:  "another foreign holder starts over",
			lease: leaseOf("n_third", start), prev: saw("n_foreign", start, start), after: time.Minute,
			want: Yield, since: time.Minute,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, kept := Decide(tc.lease, self, tc.prev, start.Add(tc.after))
			if got != tc.want {
				t.Errorf("decided to %s, want %s", got, tc.want)
			}
			if tc.since < 0 && kept != (Sighting{}) {
				t.Errorf("kept %+v, want nothing", kept)
			}
			if tc.since >= 0 && !kept.Since.Equal(start.Add(tc.since)) {
				t.Errorf("kept a sighting since %s, want since start+%s", kept.Since, tc.since)
			}
		})
	}
}

func TestPatienceWithAForeignHolder(t *testing.T) {
	for interval, want := range map[string]time.Duration{
		"10s": 30 * time.Second, "": 30 * time.Second, "never": 30 * time.Second, "5s": 35 * time.Second,
		"39s": 78 * time.Second, // it lives, and renews every 39 s
	} {
		lease := leaseOf("n_foreign", start)
		lease.Annotations = map[string]string{"fettle.dev/heartbeat-interval": interval}
		if got := patienceWith(lease); got != want {
			t.Errorf("interval %q: %s, want %s", interval, got, want)
		}
	}
}

// Whatever the clocks of holders say and however looks are spaced, a lease is taken from a foreign holder only when it
// stood still for three of its intervals, which is its duration less one.
func TestALivingHolderIsNeverRobbed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, renewed := start, start
		lastChange := now
		var seen Sighting
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "ms")) * time.Millisecond)
			if rapid.Bool().Draw(t, "renews") {
				step := time.Duration(rapid.IntRange(1, 7200).Draw(t, "s")-3600) * time.Second
				if step == 0 {
					step = time.Microsecond // a renewal moves the time, also where the clock stands
				}
				renewed = renewed.Add(step)
				lastChange = now
			}
			var action Action
			action, seen = Decide(leaseOf("n_foreign", renewed), Self{Holder: "n_new"}, seen, now)
			if action == TakeOver && now.Sub(lastChange) <= 30*time.Second {
				t.Fatalf("took a lease that was renewed %s ago", now.Sub(lastChange))
			}
			if action != TakeOver && action != Yield {
				t.Fatalf("decided to %s a foreign lease", action)
			}
		}
	})
}

func TestRenewed(t *testing.T) {
	node := Owner{Name: "n", UID: "uid-2"}
	t.Run("a new lease has the node as owner and an acquireTime", func(t *testing.T) {
		l := renewed(nil, "leases", "n_new", node, 10*time.Second, 40*time.Second, start)
		if l.Name != "n" || l.Namespace != "leases" || *l.Spec.HolderIdentity != "n_new" || *l.Spec.LeaseDurationSeconds != 40 ||
			l.Spec.AcquireTime == nil || l.Spec.LeaseTransitions != nil || l.Annotations["fettle.dev/heartbeat-interval"] != "10s" {
			t.Errorf("lease is %+v", l)
		}
		if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "uid-2" || l.OwnerReferences[0].Kind != "Node" {
			t.Errorf("owners are %+v", l.OwnerReferences)
		}
	})
	t.Run("a clock that stands still moves the renewTime by a microsecond", func(t *testing.T) {
		l := renewed(leaseOf("n_new", start), "leases", "n_new", node, 10*time.Second, 40*time.Second, start)
		if !l.Spec.RenewTime.Time.Equal(start.Add(time.Microsecond)) {
			t.Errorf("renewTime is %s", l.Spec.RenewTime)
		}
	})
	t.Run("a clock that stepped back is written as it is", func(t *testing.T) {
		l := renewed(leaseOf("n_new", start), "leases", "n_new", node, 10*time.Second, 40*time.Second, start.Add(-time.Hour))
		if !l.Spec.RenewTime.Time.Equal(start.Add(-time.Hour)) {
			t.Errorf("renewTime is %s", l.Spec.RenewTime)
		}
	})
	t.Run("a takeover counts and keeps what others put on the lease", func(t *testing.T) {
		old := leaseOf("n_old", start)
		old.Labels = map[string]string{"foreign": "label"}
		old.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: "n", UID: "uid-1"},
			{APIVersion: "example.com/v1", Kind: "Rack", Name: "r", UID: "uid-9"},
		}
		l := renewed(old, "leases", "n_new", node, 10*time.Second, 40*time.Second, start.Add(time.Second))
		if *l.Spec.LeaseTransitions != 1 || !l.Spec.AcquireTime.Time.Equal(start.Add(time.Second)) || l.Labels["foreign"] != "label" {
			t.Errorf("lease is %+v", l)
		}
		if len(l.OwnerReferences) != 2 || l.OwnerReferences[0].Kind != "Rack" || l.OwnerReferences[1].UID != "uid-2" {
			t.Errorf("owners are %+v", l.OwnerReferences)
		}
		if *old.Spec.HolderIdentity != "n_old" || len(old.OwnerReferences) != 2 || old.OwnerReferences[0].UID != "uid-1" {
			t.Errorf("the lease that was read changed: %+v", old)
		}
	})
}

func TestMemoryFindsWhicheverIdentityTheLeaseCarriesAfterACrash(t *testing.T) {
	dir := t.TempDir()
	lives := []string{"n_1", "n_2", "n_3", "n_4"}
	confirmed := map[string]bool{"n_2": true}
	for i, holder := range lives {
		m, err := recall(dir, "n")
		if err != nil {
			t.Fatal(err)
		}
		for _, earlier := range lives[:i] {
			mayBeOnLease := earlier == "n_2" || (i == 1 && earlier == "n_1") || (i > 2 && earlier == "n_3")
			if has := slices.Contains(m.predecessors(), earlier); has != mayBeOnLease {
				t.Errorf("%s knows %s as predecessor: %v, want %v", holder, earlier, has, mayBeOnLease)
			}
		}
		if err := remember(dir, m.attempting(holder)); err != nil {
			t.Fatal(err)
		}
		if confirmed[holder] {
			if err := remember(dir, memory{Node: "n", Confirmed: holder}); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := memory{Confirmed: "n_2"}
	for range 50 {
		m = m.attempting("n_x")
	}
	if len(m.predecessors()) != maxAttempted+1 || m.predecessors()[0] != "n_2" {
		t.Errorf("after 50 attempts %d predecessors are remembered, the confirmed one first: %v", len(m.predecessors()), m.predecessors())
	}
}
