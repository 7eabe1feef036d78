package watch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

func name(i int) string { return fmt.Sprintf("n%04d", i) }

// populate shows so many agents that have reported, and a first beat of each.
func (r *rig) populate(agents int) {
	for i := range agents {
		r.leases.handler.OnAdd(r.renew(name(i)), false)
		r.hosts.handler.OnAdd(reportedHost(name(i)), false)
	}
	synctest.Wait()
}

func reportedHost(node string) *fettlev1alpha1.Host {
	return &fettlev1alpha1.Host{
		ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("host-" + node)},
		Status:     fettlev1alpha1.HostStatus{Agent: &fettlev1alpha1.HostAgent{}},
	}
}

// live lets the given agents beat every ten seconds, spread over them as agents are, while time passes.
func (r *rig) live(d time.Duration, agents ...int) {
	const step = 500 * time.Millisecond
	for passed := time.Duration(0); passed < d; passed += step {
		r.turn++
		for k := r.turn % 20; k < len(agents); k += 20 {
			r.leases.handler.OnAdd(r.renew(name(agents[k])), false)
		}
		r.pass(step)
	}
}

func between(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

func (r *rig) verdict(want fleet.Verdict, reason string) {
	r.Helper()
	if got := r.Fleet(); got.Verdict != want || got.Reason != reason {
		r.Errorf("the fleet is %s because of %s (%s), want %s because of %s: %+v", got.Verdict, got.Reason, got.Message, want, reason, got)
	}
}

func (r *rig) silences(want int) {
	r.Helper()
	if got := r.Counts()[liveness.Silent]; got != want {
		r.Errorf("%d agents are silent, want %d: %v", got, want, r.Counts())
	}
}

func TestMostOfTheFleetStopsAndReturns(t *testing.T) {
	for _, tc := range []struct {
		name        string
		agents, die int
	}{
		{"60 % of 1,000 agents", 1000, 600},
		{"all of 1,000 agents", 1000, 1000},
		{"31 % of 100 agents", 100, 31},
		{"three of four agents", 4, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.populate(tc.agents)
				r.live(20*time.Second, between(0, tc.agents)...)
				r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
				r.live(15*time.Minute, between(tc.die, tc.agents)...)
				r.verdict(fleet.Suspended, fleet.ReasonManyStale)
				r.silences(0) // all let their leases run out before the first was past its grace period
				if report := r.Fleet(); report.Stale != tc.die || report.Waiting != tc.die || report.Agents != tc.agents {
					t.Errorf("numbers: %+v", report)
				}
				if reads := r.reads(); reads > 0 {
					t.Errorf("%d live reads that could have no consequence", reads)
				}
				r.live(time.Minute, between(0, tc.agents)...)
				r.verdict(fleet.Suspended, fleet.ReasonManyStale)
				r.live(2*time.Minute, between(0, tc.agents)...)
				r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
				r.silences(0)
				r.live(52*time.Second, between(1, tc.agents)...)
				r.silences(1) // one machine is its own fault again
			})
		})
	}
}

func TestThoseThatStayAwayWhenSuspensionEndsAreTimedAnew(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.populate(100)
		r.live(5*time.Minute, between(60, 100)...)
		r.verdict(fleet.Suspended, fleet.ReasonManyStale)
		r.live(2*time.Minute+30*time.Second, between(5, 100)...)
		r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
		r.silences(0)
		r.live(time.Minute, between(5, 100)...)
		r.silences(5)
	})
}

func TestSilencesBeyondTheLimitWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.populate(100)
		r.live(20*time.Second, between(0, 100)...)
		r.live(61*time.Second, between(25, 100)...)
		r.verdict(fleet.Partial, fleet.ReasonLimitReached)
		r.silences(10) // a tenth of 100
		r.live(30*time.Second, between(25, 100)...)
		r.silences(10)
		r.live(20*time.Second, between(25, 100)...)
		r.silences(10 + 9) // a tenth of those that were left
		r.live(time.Minute, between(25, 100)...)
		r.silences(25)
		r.show(r.renew(name(0)))
		r.is(name(0), liveness.Alive) // recovery waits for nothing
		r.live(3*time.Minute, between(25, 100)...)
		r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
	})
}

func TestSilencesThatTheClusterKnowsOfAreNotNew(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.populate(100)
		for i := range 50 { // as another leader left them
			host := reportedHost(name(i))
			host.UID += "-again"
			host.Status.Conditions = []metav1.Condition{{Type: fettlev1alpha1.HostReady, Status: metav1.ConditionUnknown}}
			r.hosts.handler.OnAdd(host, false)
		}
		r.live(55*time.Second, between(50, 100)...)
		r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
		r.silences(50)
		if report := r.Fleet(); report.Agents != 50 || report.Silent != 50 || report.New != 0 {
			t.Errorf("numbers: %+v", report)
		}
		r.live(70*time.Second, between(60, 100)...)
		r.verdict(fleet.Partial, fleet.ReasonLimitReached) // ten of the fifty that were left
	})
}

func TestTheControllerIsBlind(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, fettlev1alpha1.LeaseNamespace)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no rights"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		name   string
		reason string
		blind  func(*server)
	}{
		{"while the API server is down", fleet.ReasonAPIUnreachable, func(s *server) { s.fault, s.stalled = errors.New("connection refused"), true }},
		{"while the API server hangs", fleet.ReasonAPIUnreachable, func(s *server) { s.hangs, s.stalled = true, true }},
		{"while its watch is stalled", fleet.ReasonWatchStalled, func(s *server) { s.stalled = true }},
		{"while it may not list leases", fleet.ReasonLeasesForbidden, func(s *server) { s.noList, s.stalled = forbidden, true }},
		{"while it may not read leases", fleet.ReasonLeasesForbidden, func(s *server) { s.fault, s.stalled = forbidden, true }},
		{"while the namespace of the leases is being deleted", fleet.ReasonLeasesMissing, func(s *server) { s.fault = terminating }},
		{"while the namespace of the leases is gone", fleet.ReasonLeasesMissing, func(s *server) { s.fault = gone }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.populate(20)
				r.live(20*time.Second, between(0, 20)...)
				set := func(change func(*server)) {
					r.server.mu.Lock()
					defer r.server.mu.Unlock()
					change(r.server)
				}
				set(tc.blind)
				if tc.reason == fleet.ReasonLeasesMissing {
					for i := range 20 {
						r.leases.handler.OnDelete(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name(i)}})
					}
				}
				r.pass(40 * time.Second)
				r.verdict(fleet.Blind, tc.reason)
				r.pass(5 * time.Minute)
				r.verdict(fleet.Blind, tc.reason)
				r.silences(0)
				if reads := r.reads(); reads > 0 {
					t.Errorf("%d live reads of a blind controller", reads)
				}
				unseen := tc.reason == fleet.ReasonAPIUnreachable || tc.reason == fleet.ReasonWatchStalled // not by rights over leases
				if now := time.Since(r.Blind()) <= time.Second; now != unseen {
					t.Errorf("nothing can be seen now: %v, want %v", now, unseen)
				}

				set(func(s *server) { s.fault, s.noList, s.hangs, s.stalled = nil, nil, false, false })
				r.live(2*time.Minute+10*time.Second, between(1, 20)...)
				r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
				r.silences(0)
				r.live(time.Minute, between(1, 20)...)
				r.silences(1)
				if ago := time.Since(r.Blind()); ago < time.Minute {
					t.Errorf("blind %s ago, and yet all is normal", ago)
				}
			})
		})
	}
}

func TestALeaderThatSeesNothingJudgesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.stalled = true
		lead(t, s, func(r *rig) {
			r.populate(20)
			r.pass(20 * time.Second)
			if report := r.Fleet(); report.Verdict != fleet.Normal {
				t.Errorf("blind within %s: %+v", report.CanaryAge, report)
			}
			r.pass(10 * time.Minute)
			r.verdict(fleet.Blind, fleet.ReasonWatchStalled)
			r.silences(0)
		})
	})
}

func TestPlannedAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admitted := map[string]time.Time{}
		lead(t, newServer(), func(r *rig) {
			r.populate(10)
			for i := range 5 {
				admitted[name(i)] = time.Now().Add(5 * time.Minute)
			}
			r.live(4*time.Minute, between(5, 10)...)
			r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
			r.silences(0)
			if report := r.Fleet(); report.Agents != 5 || report.Away != 5 || report.Stale != 0 {
				t.Errorf("numbers: %+v", report)
			}
			r.show(r.renew(name(0)))
			r.live(30*time.Second, 5, 6, 7, 8, 9, 0)
			r.live(time.Minute, 5, 6, 7, 8, 9, 0, 1, 2, 3)
			r.silences(1) // its deadline is over
			r.is(name(4), liveness.Silent)
		}, func(o *Options) { o.Planned = func(node string) time.Time { return admitted[node] } })
	})
}

func TestOverride(t *testing.T) {
	override := func(r *rig, verdict fleet.Verdict, d time.Duration) {
		r.SetPolicy(fleet.Policy{Limits: fleet.DefaultLimits(), Override: fleet.Override{Verdict: verdict, Until: time.Now().Add(d), Reason: "test"}})
	}
	t.Run("Normal lets all silences through, each confirmed", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.populate(100)
			r.live(5*time.Minute, between(60, 100)...)
			r.silences(0)
			for i := range 10 { // back, but the watch is behind
				r.renew(name(i))
			}
			override(r, fleet.Normal, 10*time.Minute)
			r.live(10*time.Second, between(60, 100)...)
			r.silences(50)
			if report := r.Fleet(); report.Verdict != fleet.Normal || report.Computed != fleet.Suspended || report.Override.Reason != "test" {
				t.Errorf("report: %+v", report)
			}
			r.live(11*time.Minute, between(50, 100)...) // it ends by itself
			if report := r.Fleet(); report.Override != (fleet.Override{}) || report.Verdict != report.Computed {
				t.Errorf("report: %+v", report)
			}
		})
	})
	t.Run("Partial lets them through by the limit", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.populate(100)
			r.live(5*time.Minute, between(60, 100)...)
			override(r, fleet.Partial, 10*time.Minute)
			r.live(30*time.Second, between(60, 100)...)
			r.silences(10)
		})
	})
	t.Run("Suspended stops them, and then all are timed anew", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.populate(100)
			override(r, fleet.Suspended, 10*time.Minute)
			r.live(9*time.Minute, between(1, 100)...)
			r.silences(0)
			r.live(105*time.Second, between(1, 100)...)
			r.verdict(fleet.Normal, fleet.ReasonAgentsHeard)
			r.silences(0)
			r.live(10*time.Second, between(1, 100)...)
			r.silences(1)
		})
	})
}

func TestLeaders(t *testing.T) {
	t.Run("one that takes over a second before the grace period ends goes on from there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			lead(t, s, func(r *rig) {
				r.populate(3)
				r.live(49*time.Second, 1, 2)
				r.silences(0)
			})
			lead(t, s, func(r *rig) {
				r.again(3)
				r.live(3*time.Second, 1, 2)
				r.silences(0) // what was not saved does not count
				r.live(5*time.Second, 1, 2)
				r.silences(1)
				r.is(name(0), liveness.Silent)
			})
		})
	})
	t.Run("an agent that beat between two leaders owes nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			lead(t, s, func(r *rig) {
				r.populate(3)
				r.live(49*time.Second, 1, 2)
				r.renew(name(0))
			})
			lead(t, s, func(r *rig) {
				r.again(3)
				r.live(45*time.Second, 1, 2)
				r.silences(0)
			})
		})
	})
	t.Run("restarts every 20 s for 10 minutes do not hide a dead agent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			found := 0
			for turn := range 30 {
				lead(t, s, func(r *rig) {
					if turn == 0 {
						r.populate(300)
					} else {
						r.again(300)
					}
					r.live(20*time.Second, between(1, 300)...)
					if r.Counts()[liveness.Silent] > 0 {
						found++
						r.is(name(0), liveness.Silent)
						r.silences(1)
					}
				})
			}
			if found == 0 {
				t.Error("it was never found")
			}
		})
	})
	t.Run("a suspension outlives its leader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			lead(t, s, func(r *rig) {
				r.populate(1000)
				r.live(2*time.Minute, between(600, 1000)...)
				r.verdict(fleet.Suspended, fleet.ReasonManyStale)
			})
			lead(t, s, func(r *rig) {
				r.again(1000)
				r.live(10*time.Minute, between(600, 1000)...)
				r.verdict(fleet.Suspended, fleet.ReasonManyStale)
				r.silences(0)
			})
		})
	})
}

// again shows what there is to a new leader.
func (r *rig) again(agents int) {
	for i := range agents {
		r.server.mu.Lock()
		lease := r.server.leases[name(i)]
		r.server.mu.Unlock()
		r.leases.handler.OnAdd(lease, true)
		r.hosts.handler.OnAdd(reportedHost(name(i)), true)
	}
	synctest.Wait()
}

func TestCheckpoint(t *testing.T) {
	left := func(r *rig) string {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.leases[fettlev1alpha1.CanaryLease].Annotations[checkpointAnnotation]
	}
	inBubble(t, func(r *rig) {
		r.populate(1000)
		r.live(time.Minute, between(0, 1000)...)
		if text := left(r); text != "" {
			t.Errorf("a checkpoint while all is well: %s", text)
		}
		r.live(30*time.Second, between(1, 1000)...)
		if text := left(r); strings.Count(text, `"host"`) != 1 || !strings.Contains(text, "host-n0000") {
			t.Errorf("checkpoint: %s", text)
		}
		r.live(time.Minute, between(1, 1000)...)
		if text := left(r); text != "" {
			t.Errorf("an agent that the cluster knows of is in the checkpoint: %s", text)
		}
		r.live(time.Minute, between(600, 1000)...)
		if text := left(r); strings.Count(text, `"host"`) != mostLate || len(text) > 64<<10 {
			t.Errorf("a checkpoint of %d bytes and %d agents", len(text), strings.Count(text, `"host"`))
		}
		r.live(4*time.Minute, between(0, 1000)...)
		if text := left(r); text != "" {
			t.Errorf("a checkpoint after all are back: %s", text)
		}
	})
}

// TestCheckpointSize holds the largest checkpoint against the bound on annotations, with names as long as they may be.
func TestCheckpointSize(t *testing.T) {
	var c checkpoint
	for range mostLate {
		c.Agents = append(c.Agents, late{
			Host: strings.Repeat("u", 36), RenewTime: "2026-05-01T12:00:00.123456Z", Holder: strings.Repeat("n", 63) + "_" + strings.Repeat("u", 36),
			Stale: metav1.Duration{Duration: 1234567 * time.Millisecond},
		})
	}
	text, err := c.encode()
	if err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestWhatIsNoBeat(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.populate(5)
		lease := r.renew(name(0))
		r.show(lease)
		for i := range 6 {
			labelled := lease.DeepCopy()
			labelled.Labels = map[string]string{"foreign": fmt.Sprint(i)}
			labelled.ResourceVersion = fmt.Sprint(1000 + i)
			r.show(labelled)
			host := reportedHost(name(1)) // it can write its status and not its lease
			host.Status.Conditions = []metav1.Condition{{Type: fettlev1alpha1.HostReady, Status: metav1.ConditionTrue, Message: fmt.Sprint(i)}}
			r.hosts.handler.OnAdd(host, false)
			r.live(10*time.Second, 2, 3, 4)
		}
		r.is(name(0), liveness.Silent)
		r.live(time.Minute, 2, 3, 4)
		r.is(name(1), liveness.Silent)
		r.changes = nil
		for i := range 6 {
			host := reportedHost(name(1))
			host.Status.Conditions = []metav1.Condition{{Type: fettlev1alpha1.HostReady, Status: metav1.ConditionTrue, Message: fmt.Sprint("again", i)}}
			r.hosts.handler.OnAdd(host, false)
			r.live(10*time.Second, 2, 3, 4)
		}
		if len(r.changes) > 0 {
			t.Errorf("it flaps: %v", r.changes)
		}
	})
}

func TestClocksOfAgentsDoNotCount(t *testing.T) {
	for _, tc := range []struct {
		name  string
		clock func(beat int) time.Time
	}{
		{"an hour behind", func(int) time.Time { return time.Now().Add(-time.Hour) }},
		{"an hour ahead", func(int) time.Time { return time.Now().Add(time.Hour) }},
		{"stepping back an hour", func(i int) time.Time { return time.Now().Add(-time.Duration(i) * time.Hour) }},
		{"stepping ahead an hour", func(i int) time.Time { return time.Now().Add(time.Duration(i) * time.Hour) }},
		{"frozen, as agents renew then", func(i int) time.Time { return time.Unix(1, 0).Add(time.Duration(i) * time.Microsecond) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.showHost("a", true)
				for i := range 30 {
					lease := r.renew("a")
					lease.Spec.RenewTime = &metav1.MicroTime{Time: tc.clock(i)}
					r.show(lease)
					r.pass(10 * time.Second)
					r.is("a", liveness.Alive)
				}
				r.pass(time.Minute)
				r.is("a", liveness.Silent)
			})
		})
	}
}

// A clock of the controller that is set does not move what it measures: its times carry a monotonic reading.
func TestTheControllersClockMayBeSet(t *testing.T) {
	w := New(Options{Changed: func(string) {}, Limits: liveness.Limits{Grace: time.Minute, StartupGrace: time.Minute}})
	now := time.Now()
	w.see(sighting{node: "a", host: reportedHost("a")}, now)
	if at := w.agents["a"].history.LastChange; !strings.Contains(at.String(), " m=") {
		t.Errorf("a history that begins at %s", at)
	}
	c := newCanary(now, time.Minute)
	c.sent = append(c.sent, now)
	c.sighted(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &c.holder, RenewTime: new(metav1.NewMicroTime(now.Truncate(time.Microsecond)))}})
	if !c.proven() || !strings.Contains(c.seen.String(), " m=") {
		t.Errorf("a canary seen at %s", c.seen)
	}
}

func TestForeignCanariesProveNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.populate(3)
		r.server.mu.Lock()
		r.server.stalled = true
		r.server.mu.Unlock()
		for range 60 {
			foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fettlev1alpha1.CanaryLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another"), RenewTime: new(metav1.NowMicro())}}
			r.leases.handler.OnAdd(foreign, false)
			r.pass(time.Second)
		}
		r.verdict(fleet.Blind, fleet.ReasonWatchStalled)
		if len(r.agents) != 3 {
			t.Errorf("%d agents: the canary is none", len(r.agents))
		}
	})
}
